"""Defaults: which remote is meant, what a check leaves behind, where outputs may go, and what quiet leaves out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
    assert "next: maskreg remote default first" in run("remote", "remove", "third").err
    run("push", REF, status=78)


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


@pytest.mark.parametrize("home", ["never", "empty"])
def test_reading_commands_create_nothing_in_an_empty_home(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / home))
    if home == "empty":
        (tmp_path / home).mkdir(mode=0o700)
    before = sorted(tmp_path.rglob("*"))
    for command in READING:
        run(*command)
        assert sorted(tmp_path.rglob("*")) == before, command
    assert run("db", "check", "--json").json == {"revision": None, "usable": False}


def test_outputs_make_the_folders_that_they_need(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run("apply", REF, "--source", pair[0], "-o", tmp_path / "c/d/out")
    run("remote", "add", "lab", tmp_path / "i/j/lab")
    for path in ("c/d/out", "i/j/lab"):
        assert (tmp_path / path).exists()


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


def test_a_name_is_moved_with_its_history(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    moved = run("mv", REF, "team/toy")
    assert run("show", "team/toy:v1", "--json").json["card"]["family"] == "toy"
    assert [row["action"] for row in run("log", REF, "--json").json] == ["created", "removed"]
    run(*moved.err.split("maskreg ")[1].split())
    later = run("extract", pair[1], pair[0], "--name", "other", "--json").json["digest"]
    run("mv", "other", REF, status=75)
    assert sorted(run("list", "-q").out.split()) == ["other", REF]
    (row,) = run("mv", "other", REF, "--force", "--json").json
    assert row == {"old": "other", "new": REF, "digest": later, "was": artifact}
    run("mv", f"{REF}@{artifact}", "other", status=66)


def test_all_tags_of_a_name_move_or_none(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("tag", REF, "v2", "latest")
    run("extract", pair[1], pair[0], "--name", "new/toy:v2")
    run("mv", "--all", "toy-opd", "new/toy", status=75)
    assert len(run("list", "toy-opd:*", "-q").out.split()) == 3
    rows = run("mv", "--all", "toy-opd", "new/toy", "--force", "--json").json
    assert [row["new"] for row in rows] == ["new/toy", "new/toy:v1", "new/toy:v2"]
    assert run("list", "toy-opd:*", "-q").out == ""


def test_a_shared_name_moves_only_by_force(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that was pushed: test_questions.py.
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", REF)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob"))
    run("pull", REF)
    back = ["extract", pair[1], pair[0], "--name", REF]
    step = run(*back, status=75).err.partition("or move it: maskreg ")[2].split()
    assert run(*step, "--json").json["was"] == artifact
    monkeypatch.setattr("maskreg.registry.registry.who", lambda: "carol@there")
    run("extract", *pair, "--name", "own")
    monkeypatch.setattr("maskreg.registry.registry.who", lambda: "dave@there")
    assert "was set by carol@there" in run("extract", pair[1], pair[0], "--name", "own", status=75).err


def test_all_tags_of_a_remote_that_went_back_are_taken_at_once(run: Run, artifact: str, tmp_path: Path) -> None:
    step = "maskreg remote check lab --allow-rollback"
    run("remote", "add", "lab", tmp_path / "lab")
    tags = [REF, "toy-opd:v2", "toy-opd:same"]
    run("tag", *tags)
    run("push", *tags)
    shutil.copytree(tmp_path / "lab", tmp_path / "backup")
    for tag in tags[:2]:
        run("annotate", tag, "--description", "later")
        run("push", tag)
    last = tmp_path / "lab/refs/default/toy-opd/v1" / f"{2:020d}.json"
    last.rename(tmp_path / "kept")
    assert step not in run("pull", REF, status=65).err  # it is this one alone
    shutil.rmtree(tmp_path / "lab")
    (tmp_path / "backup").rename(tmp_path / "lab")
    for command in (["pull", REF], ["push", "toy-opd:v2"], ["show", REF, "--remote", "lab"]):
        told = run(*command, status=65).err
        assert f"maskreg {' '.join(command)} --allow-rollback takes the tag" in told
        assert told.endswith(f"{step}\n")
    assert f": {step}\n" in run("verify", "--all", "--remote", "lab", status=65).out
    taken = run(*step.split()[1:], "--json")
    assert len(taken.json["accepted"]) == 2
    assert [f"note: accepted: {text}" for text in taken.json["accepted"]] == taken.err.splitlines()
    run("verify", "--all", "--remote", "lab")
    assert run(*step.split()[1:], "--json").json["accepted"] == []
