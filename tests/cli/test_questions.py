"""The question before a shared name moves, and what follows from the answer."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from maskreg.ref import Ref
from tests.cli.conftest import Run
from tests.cli.terminal import answered

REF = "toy-opd:v1"
MADE = "made:v1"

COMMANDS = {
    "extract": ("extract", "{target}", "{source}", "--name", MADE),
    "baseline": ("baseline", REF, "--kind", "random-global", "--seed", "5", "--name", MADE),
    "combine": ("combine", REF, "two", "--how", "and", "--name", MADE),
    "analyze": ("analyze", REF, "--source", "{source}", "--rank", "4", "--preset", "small", "--name", MADE),
}
"""Commands that give what they made a name, here one that was pushed."""

NAMING = [pytest.param(name, marks=pytest.mark.torch if name == "analyze" else ()) for name in COMMANDS]


@pytest.fixture
def shared(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> str:
    """The digest of an artifact whose name was pushed."""
    run("extract", *pair, "--name", "two", "--mask-only")
    run("extract", pair[1], pair[0], "--name", MADE, "--mask-only")
    run("remote", "add", "team", tmp_path / "team")
    run("push", MADE)
    return str(run("show", MADE, "--json").json["digest"])


@pytest.mark.parametrize("name", NAMING)
def test_a_shared_name_moves_by_force_alone_or_when_it_is_confirmed(
    run: Run, shared: str, pair: tuple[Path, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [word.format(source=pair[0], target=pair[1]) for word in COMMANDS[name]]
    artifacts = Path(os.environ["MASKREG_HOME"], "artifacts", "sha256")
    before = set(artifacts.iterdir())
    refused = run(*command, status=75).err
    assert set(artifacts.iterdir()) == before  # refused before the work
    assert refused.rstrip().endswith("--force")
    assert run("show", MADE, "--json").json["digest"] == shared
    with monkeypatch.context() as patch:
        screen = answered(patch, "n\n")
        run(*command, status=1)
    shown = screen.getvalue()
    assert f"{MADE} ({shared[:19]}) " in shown
    assert "error" not in shown
    assert run("show", MADE, "--json").json["digest"] == shared
    assert run(*command, "--force", "--json").json["was"] == shared
    run("tag", f"{Ref.parse(MADE).name}@{shared}", "v1")
    with monkeypatch.context() as patch:
        answered(patch, "y\n")
        assert run(*command, "--json").json["was"] == shared


def test_no_at_the_question_of_rm_is_a_negative_answer(
    run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        screen = answered(patch, "n\n")
        run("rm", REF, status=1)
    assert screen.getvalue()
    with monkeypatch.context() as patch:
        answered(patch, "n\n")
        error = run("rm", REF, "--json", status=1).json["error"]
    assert (error["code"], error["exit"], error["hint"], error["facts"]) == ("DECLINED", 1, "", {})
    assert run("show", REF, "--json").json["digest"] == artifact


def test_ctrl_c_at_a_question_is_an_interruption(run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> bool:
        raise click.Abort

    screen = answered(monkeypatch, "")
    monkeypatch.setattr(click, "confirm", interrupt)
    run("rm", REF, status=130)
    # The terminal has echoed ^C, so the message begins a line of its own.
    assert screen.getvalue().endswith("\nerror: interrupted\n")
    assert run("show", REF, "--json").json["digest"] == artifact
