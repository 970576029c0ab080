"""Tag, annotate, remove, restore and history: the names of an artifact."""

from __future__ import annotations

from dataclasses import replace

import pytest

import maskreg
from maskreg.errors import BadRefError, StaleError
from maskreg.workspace.storing import Naming, Stored


def test_names_are_added_beside_the_present_ones(ada: maskreg.Workspace, toy: Stored) -> None:
    names = maskreg.tag("toy:v1", "best", "team/toy:paper", maskreg.Ref("default", "copy"), workspace=ada)
    assert [str(name.ref) for name in names] == ["toy:best", "team/toy:paper", "copy"]
    assert {name.digest for name in names} == {toy.digest}
    assert {str(entry.ref) for entry in maskreg.list(workspace=ada)} == {"toy:v1", "toy:best", "team/toy:paper", "copy"}
    assert ada.find("copy").card == toy.card


def test_a_digest_gets_a_whole_name(ada: maskreg.Workspace, toy: Stored) -> None:
    (name,) = maskreg.tag(toy.digest, "fresh:v1", workspace=ada)
    assert (name.n, ada.find("fresh:v1").card) == (1, maskreg.Card())
    with pytest.raises(maskreg.UsageError, match="'v2'"):
        maskreg.tag(toy.digest, "v2", workspace=ada)


def test_names_are_checked_before_the_first_is_set(ada: maskreg.Workspace, toy: Stored) -> None:
    with pytest.raises(maskreg.UsageError):
        maskreg.tag("toy:v1", "good", f"team/x@{toy.digest}", workspace=ada)
    with pytest.raises(BadRefError):
        maskreg.tag("toy:v1", "good", "BAD/NAME", workspace=ada)
    with pytest.raises(maskreg.UsageError):
        maskreg.tag("toy:v1", workspace=ada)
    assert [str(entry.ref) for entry in maskreg.list(workspace=ada)] == ["toy:v1"]


def test_a_card_changes_and_the_artifact_does_not(ada: maskreg.Workspace, toy: Stored) -> None:
    changed = maskreg.annotate("toy:v1", license="mit", meta={"seed": "1", "lr": "1e-6"}, workspace=ada)
    assert (changed.digest, changed.n) == (toy.digest, 2)
    assert changed.card == maskreg.Card("toy", "opd", "mit", "", {"seed": "1", "lr": "1e-6"})
    again = maskreg.annotate(toy, method="", meta={"lr": ""}, workspace=ada)
    assert again.card == maskreg.Card("toy", "", "mit", "", {"seed": "1"})
    with pytest.raises(maskreg.UsageError, check=lambda error: "options" in error.facts):
        maskreg.annotate("toy:v1", workspace=ada)
    with pytest.raises(maskreg.UsageError, match=r"^family "):
        maskreg.annotate("toy:v1", family="a\x1b[2J", workspace=ada)
    text = "# Use\n\n\tmaskreg.apply(...)\n"
    assert maskreg.annotate("toy:v1", readme=text, workspace=ada).card == replace(again.card, readme=text)
    assert maskreg.annotate("toy:v1", readme="", workspace=ada).card == again.card
    with pytest.raises(maskreg.UsageError, match="README "):
        maskreg.annotate("toy:v1", readme="a\x1b[2J", workspace=ada)


def test_names_of_a_remote_change_there_in_the_name_of_their_author(ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.push("toy:v1", workspace=ada)
    where = {"remote": "team", "workspace": ada}
    (best,) = maskreg.tag("toy:v1", "best", card=maskreg.Card(family="other"), by="bob", **where)  # type: ignore[arg-type]
    maskreg.annotate("toy:best", license="mit", by="carl", **where)  # type: ignore[arg-type]
    maskreg.remove("toy:best", by="dora", **where)  # type: ignore[arg-type]
    maskreg.restore("toy:best", by="emil", **where)  # type: ignore[arg-type]
    log = maskreg.log("toy:best", **where)  # type: ignore[arg-type]
    assert [(entry.action, entry.by) for entry in log] == [
        *(("created", "bob"), ("annotated", "carl"), ("removed", "dora"), ("restored", "emil"))
    ]
    assert best.digest == toy.digest
    assert ada.find("toy:best", "team").card == maskreg.Card(family="other", license="mit")
    assert [str(row.ref) for row in maskreg.list(workspace=ada)] == ["toy:v1"]


def test_what_has_changed_since_it_was_seen_is_not_changed(ada: maskreg.Workspace, toy: Stored) -> None:
    (seen,) = maskreg.log("toy:v1", workspace=ada)
    maskreg.annotate("toy:v1", license="mit", expected=seen.id, workspace=ada)
    for change in (
        lambda: maskreg.annotate("toy:v1", license="gpl", expected=seen.id, workspace=ada),
        lambda: maskreg.remove("toy:v1", expected=seen.id, workspace=ada),
        lambda: maskreg.restore("toy:v1", expected=seen.id, workspace=ada),
        lambda: maskreg.tag(toy.digest, "toy:v1", expected=seen.id, workspace=ada),
    ):
        with pytest.raises(StaleError, match=r"toy:v1 .*\b2\b"):
            change()
    with pytest.raises(StaleError, match="toy:v1 "):
        maskreg.tag(toy.digest, "toy:v1", expected="absent", workspace=ada)
    with pytest.raises(StaleError, match="toy:new "):
        maskreg.tag(toy.digest, "toy:new", expected=seen.id, workspace=ada)
    assert maskreg.tag(toy.digest, "toy:new", expected="absent", workspace=ada)[0].n == 1
    assert len(maskreg.log("toy:v1", workspace=ada)) == 2


def test_a_rename_that_was_interrupted_ends_when_it_is_repeated(
    ada: maskreg.Workspace, toy: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("maskreg.registry.tags.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            maskreg.mv("toy:v1", "team/toy", workspace=ada)
    assert {str(row.ref) for row in maskreg.list(workspace=ada)} == {"toy:v1", "team/toy:v1"}
    (moved,) = maskreg.mv("toy:v1", "team/toy", workspace=ada)
    assert (str(moved.new), moved.digest) == ("team/toy:v1", toy.digest)
    assert [str(row.ref) for row in maskreg.list(workspace=ada)] == ["team/toy:v1"]
    assert ada.find("team/toy:v1").card == toy.card


def test_a_new_artifact_is_named_only_while_it_is_whole(ada: maskreg.Workspace, toy: Stored) -> None:
    naming = Naming(ada, "late", careful=True)
    next((ada.root / "artifacts").rglob("mask/c/0")).unlink()
    with pytest.raises(maskreg.MaskregError):
        naming.store(toy.digest, maskreg.Card())
    assert [str(row.ref) for row in maskreg.list(workspace=ada)] == ["toy:v1"]
