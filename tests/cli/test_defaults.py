"""Defaults: which remote is meant, what a check leaves behind, where outputs can go, and what quiet leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

REF = "toy-opd:v1"


READING = (
    ("list",),
    ("list", "absent"),
    ("list", "--kind", "mask", "--density", "0.1..", "--json"),
    ("db", "check"),
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


def test_quiet_prints_references_alone(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    done = run("extract", *pair, "--name", REF, "-q")
    assert (done.out, done.err) == (f"{REF}@{artifact}\n", "")
    assert run("show", artifact, "-q").out == f"{artifact}\n"
    for command in (
        ["remote", "add", "lab", tmp_path / "lab"],
        ["rm", REF, "-y"],
        ["config", "set", "default_remote", "lab"],
    ):
        done = run(*command, "-q")
        assert (done.out, done.err) == ("", "")
    assert run("restore", REF, "-q").out == f"{REF}@{artifact}\n"
    done = run("push", REF, "-q")
    assert (done.out, done.err) == (f"{REF}@{artifact}\n", "")


def test_all_tags_of_a_name_move_or_none(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("tag", REF, "v2", "latest")
    run("extract", pair[1], pair[0], "--name", "new/toy:v2")
    run("mv", "--all", "toy-opd", "new/toy", status=75)
    assert len(run("list", "toy-opd:*", "-q").out.split()) == 3
    rows = run("mv", "--all", "toy-opd", "new/toy", "--force", "--json").json
    assert [row["new"] for row in rows] == ["new/toy", "new/toy:v1", "new/toy:v2"]
    assert run("list", "toy-opd:*", "-q").out == ""
