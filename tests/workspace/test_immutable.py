"""Tags that never move, and names that come back for another artifact."""

from __future__ import annotations

import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.errors import ImmutableTagError
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab


@pytest.fixture
def other(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> Stored:
    """Another artifact in ada's registry: the pair the other way round."""
    return maskreg.extract(lab.target, lab.source, "other:v1", workspace=ada)


def test_an_immutable_tag_refuses_every_other_artifact(ada: maskreg.Workspace, toy: Stored, other: Stored) -> None:
    (name,) = maskreg.tag("toy:v1", "v2", immutable=True, workspace=ada)
    assert name.immutable
    with pytest.raises(ImmutableTagError, match=f"toy:v2 .*{toy.digest.short}") as caught:
        maskreg.tag("other:v1", "fresh", "toy:v2", workspace=ada)
    assert isinstance(caught.value, maskreg.NotAllowedError)
    with pytest.raises(maskreg.NotFoundError):
        maskreg.load("other:fresh", workspace=ada)
    maskreg.annotate("toy:v2", license="mit", workspace=ada)
    maskreg.remove("toy:v2", workspace=ada)
    with pytest.raises(ImmutableTagError, match=rf"toy:v2 .*{toy.digest.short} .*\b3 "):
        maskreg.tag("other:v1", "toy:v2", workspace=ada)
    assert maskreg.restore("toy:v2", workspace=ada).digest == toy.digest
    assert [entry.immutable for entry in maskreg.log("toy:v2", workspace=ada)] == [True] * 4


def test_extract_by_force_keeps_what_it_may_not_name(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.tag("toy:v1", "v1", immutable=True, workspace=ada)
    with pytest.raises(ImmutableTagError) as caught:
        maskreg.extract(lab.target, lab.source, "toy:v1", force=True, workspace=ada)
    kept = next_step(caught.value).split("@")[1].split()[0]
    assert next_step(caught.value) == f"maskreg tag toy@{kept} OTHER-TAG"
    assert maskreg.load(kept, workspace=ada).digest == kept
    assert maskreg.extract(lab.source, lab.target, "toy:v1", force=True, workspace=ada).digest == toy.digest


def test_a_push_takes_the_mark_along_and_the_tag_stays(
    lab: Lab, ada: maskreg.Workspace, toy: Stored, bob: maskreg.Workspace
) -> None:
    maskreg.tag("toy:v1", "v1", immutable=True, workspace=ada)
    assert maskreg.push("toy:v1", workspace=ada).immutable
    assert not maskreg.push("toy:v1", tag="latest", workspace=ada).immutable
    theirs = maskreg.extract(lab.target, lab.source, "toy:v1", workspace=bob)
    before = list((lab.folder / "team").rglob("*"))
    with pytest.raises(ImmutableTagError, match="toy:v1 ") as caught:
        maskreg.push("toy:v1", workspace=bob)
    assert caught.value.facts["options"] == {"tag": None}
    assert list((lab.folder / "team").rglob("*")) == before
    assert maskreg.push("toy:v1", tag="latest", force=True, workspace=bob).digest == theirs.digest


def test_a_project_whose_tags_never_move(lab: Lab, toy: Stored, ada: maskreg.Workspace, other: Stored) -> None:
    given = maskreg.Settings(
        home=ada.settings.home,
        config_path=ada.settings.config_path,
        remotes=ada.settings.remotes,
        immutable_projects=("paper",),
    )
    with maskreg.Workspace(given) as workspace:
        names = maskreg.tag("toy:v1", "paper/toy:v1", "paper/toy", "toy:v9", workspace=workspace)
        assert [name.immutable for name in names] == [True, False, False]
        with pytest.raises(ImmutableTagError):
            maskreg.tag("other:v1", "paper/toy:v1", workspace=workspace)
        maskreg.tag("other:v1", "paper/toy", workspace=workspace)
        assert maskreg.push("paper/toy:v1", workspace=workspace).immutable
        assert maskreg.push("paper/toy:v1", tag="v2", workspace=workspace).immutable
        assert not maskreg.push("paper/toy:v1", tag="latest", workspace=workspace).immutable
