"""Defaults: which remote is meant, what a check leaves behind, where outputs may go, and what quiet leaves out."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from maskreg.errors import ConflictError
from tests.cli.conftest import Run

REF = "toy-opd:v1"


def test_the_first_remote_stays_the_default_one(run: Run, artifact: str, tmp_path: Path) -> None:
    assert "first is the default remote" in run("remote", "add", "first", tmp_path / "first").err
    assert "default" not in run("remote", "add", "second", tmp_path / "second").err
    assert run("remote", "default").out == "first\n"
    assert run("push", REF, "--json").json[0]["remote"] == "first"
    run("remote", "default", "second")
    assert run("remote", "default", "--json").json == {"name": "second", "default": True}
    assert run("remote", "add", "third", tmp_path / "third", "--default", "--json").json["default"] is True
    told = run("remote", "remove", "third").err
    assert "no remote is the default one now; next: maskreg remote default first" in told
    assert "next: maskreg remote default first" in run("push", REF, status=78).err
    run("remote", "default", "second")
    assert "note: first is the default remote now" in run("remote", "remove", "second").err
    assert run("remote", "default").out == "first\n"


def test_doctor_creates_nothing(run: Run, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", REF)

    def everything() -> list[Path]:
        return sorted(tmp_path.rglob("*"))

    for home in ("never", "empty", "home"):
        monkeypatch.setenv("MASKREG_HOME", str(tmp_path / home))
        if home == "empty":
            (tmp_path / home).mkdir(mode=0o700)
        before = everything()
        run("doctor")
        assert run("doctor", "-q").out.count("\n") == run("doctor").out.count("note  ") * 2
        assert everything() == before


READING = (
    ("list",),
    ("list", "absent"),
    ("list", "--kind", "mask", "--density", "0.1..", "--json"),
    ("db", "check"),
    ("db", "current"),
    ("gc", "--dry-run"),
    ("verify", "--all"),
    ("doctor",),
    ("config", "show"),
    ("remote", "list"),
)
"""Commands that read, and that succeed where there is nothing."""


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_commands_create_nothing_in_an_empty_home(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for home in ("never", "empty"):
        monkeypatch.setenv("MASKREG_HOME", str(tmp_path / home))
        if home == "empty":
            (tmp_path / home).mkdir(mode=0o700)
        before = sorted(tmp_path.rglob("*"))
        run(*command)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_catalog_that_is_still_to_be_made_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "never"))
    assert run("db", "check").out == "does not exist yet\n"
    assert run("db", "check", "--json").json == {"revision": None, "usable": False}
    assert run("list").out == ""
    assert run("list").err.startswith("the local registry has no artifacts\n  next: maskreg extract SOURCE TARGET")


def test_outputs_make_the_folders_that_they_need(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run("export", REF, "-o", tmp_path / "a/b/toy.maskreg")
    run("apply", REF, "--source", pair[0], "-o", tmp_path / "c/d/out")
    run("report", REF, "-o", tmp_path / "e/f/page.html", "--plots", tmp_path / "g/h")
    run("remote", "add", "lab", tmp_path / "i/j/lab")
    for path in ("a/b/toy.maskreg", "c/d/out", "e/f/page.html", "g/h", "i/j/lab"):
        assert (tmp_path / path).exists()
    told = run("export", REF, "-o", tmp_path / "a/b/toy.maskreg/c", status=73).err
    assert "toy.maskreg/c: Not a directory" in told


def test_quiet_prints_references_alone(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    done = run("extract", *pair, "--name", REF, "-q")
    assert (done.out, done.err) == (f"{REF}@{artifact}\n", "")
    assert run("show", artifact, "-q").out == f"{artifact}\n"
    for command in (["remote", "add", "lab", tmp_path / "lab"], ["rm", REF, "-y"], ["remote", "default", "lab"]):
        done = run(*command, "-q")
        assert (done.out, done.err) == ("", "")
    assert run("restore", REF, "-q").out == f"{REF}@{artifact}\n"
    done = run("push", REF, "-q")
    assert (done.out, done.err) == (f"{REF}@{artifact}\n", "")
    assert run("verify", REF, "-q").err == ""


def test_a_name_is_moved_with_its_history(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    moved = run("mv", REF, "team/toy")
    assert moved.out == f"team/toy:v1@{artifact}\n"
    assert moved.err == f"{REF} is team/toy:v1 now; back with: maskreg mv team/toy:v1 default/toy-opd:v1\n"
    assert run("show", "team/toy:v1", "--json").json["card"]["family"] == "toy"
    assert [row["action"] for row in run("log", REF, "--json").json] == ["created", "removed"]
    run(*moved.err.split("maskreg ")[1].split())
    assert run("list", "-q").out == f"{REF}\n"

    later = run("extract", pair[1], pair[0], "--name", "other", "--json").json["digest"]
    refused = run("mv", "other", REF, status=75)
    assert f"{REF} is {artifact[:19]} already" in refused.err
    assert f"next: maskreg mv other {REF} --force" in refused.err
    assert sorted(run("list", "-q").out.split()) == ["other", REF]
    (row,) = run("mv", "other", REF, "--force", "--json").json
    assert row == {"old": "other", "new": REF, "digest": later, "was": artifact}
    assert [entry["digest"] for entry in run("log", REF, "--json").json][-2:] == [artifact, later]
    run("mv", REF, REF, status=2)
    run("mv", "nobody", "other", status=66)
    run("mv", f"{REF}@{artifact}", "other", status=66)


def test_an_interrupted_move_is_finished_by_the_same_command(run: Run, artifact: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maskreg.registry.tags.remove", Mock(side_effect=ConflictError("another was faster")))
        assert (
            f"{REF} and team/toy:v1 both name {artifact[:19]} now: another" in run("mv", REF, "team/toy", status=75).err
        )
    assert sorted(run("list", "-q").out.split()) == ["team/toy:v1", REF]
    assert run("mv", REF, "team/toy").out == f"team/toy:v1@{artifact}\n"
    assert run("list", "-q").out == "team/toy:v1\n"


def test_all_tags_of_a_name_move_or_none(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("tag", REF, "v2", "latest")
    run("extract", pair[1], pair[0], "--name", "new/toy:v2")
    run("mv", "--all", "toy-opd", "new/toy", status=75)
    assert len(run("list", "toy-opd:*", "-q").out.split()) == 3
    rows = run("mv", "--all", "toy-opd", "new/toy", "--force", "--json").json
    assert [row["new"] for row in rows] == ["new/toy", "new/toy:v1", "new/toy:v2"]
    assert run("list", "toy-opd:*", "-q").out == ""
    run("mv", "--all", "new/toy", "a:b", status=2)


def test_a_shared_name_moves_only_by_force(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = ["extract", pair[1], pair[0], "--name", REF]
    mine = run(*back, "--json").json["digest"]
    run("extract", *pair, "--name", REF)  # the name is not shared yet
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", REF)
    run("extract", *pair, "--name", REF, "--force")  # the same artifact again
    refused = run(*back, status=75).err
    assert f"{REF} ({artifact[:19]}) was pushed to a remote" in refused
    assert run("show", REF, "--json").json["digest"] == artifact
    step = refused.partition("or move it: maskreg ")[2].split()
    run(*step)
    assert run("show", REF, "--json").json["digest"] == mine
    run("push", REF)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob"))
    run("pull", REF)
    assert "was pulled from a remote" in run("extract", *pair, "--name", REF, status=75).err
    assert run("extract", *pair, "--name", REF, "--force", "--json").json["was"] == mine
    monkeypatch.setattr("maskreg.registry.registry.who", lambda: "carol@there")
    run("extract", *pair, "--name", "own")
    monkeypatch.setattr("maskreg.registry.registry.who", lambda: "dave@there")
    assert "was set by carol@there" in run("extract", pair[1], pair[0], "--name", "own", status=75).err
