"""A rename that is killed between its two steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from maskreg.errors import ConflictError
from maskreg.registry import tags
from tests.cli.conftest import Run, artifact, pair, run

__all__ = ["artifact", "pair", "run"]

KILLED = """
import os, sys
from maskreg.registry import moving

setattr({module}, "{step}", lambda *args, **options: os._exit(9))
from maskreg_cli.main import main

main(["mv", "toy-opd:v1", "team/toy", *sys.argv[1:]])
"""


def killed(module: str, step: str, *args: str) -> None:
    """Rename the artifact in a process that dies instead of doing this."""
    process = subprocess.run([sys.executable, "-c", KILLED.format(module=module, step=step), *args], check=False)
    assert process.returncode == 9


BETWEEN = ("moving.tags", "remove")


def names(run: Run) -> list[str]:
    return sorted(run("list", "-q").out.split())


def test_what_was_killed_between_the_steps_is_said_and_finished(run: Run, artifact: str) -> None:
    killed(*BETWEEN)
    assert names(run) == ["team/toy:v1", "toy-opd:v1"]
    sentence = f"the rename of toy-opd:v1 to team/toy:v1 was interrupted: both name {artifact[:19]}"
    assert f"note: {sentence}; next: maskreg mv toy-opd:v1 team/toy:v1\n" in run("list").err
    assert sentence in run("doctor", status=1).out
    told = run("mv", "toy-opd:v1", "team/toy:v1")
    assert told.out == f"team/toy:v1@{artifact}\n"
    assert f"{sentence}; toy-opd:v1 is removed now, as was meant" in told.err
    assert names(run) == ["team/toy:v1"]
    assert "interrupted" not in run("list").err
    run("mv", "toy-opd:v1", "team/toy:v1", status=66)


def test_a_rename_on_a_remote_that_was_killed_is_finished_by_the_next_there(
    run: Run, artifact: str, tmp_path: Path
) -> None:
    def names_of(remote: str) -> list[str]:
        return sorted(name["ref"] for name in run("list", "--remote", remote, "--json").json["names"])

    for remote in ("nas", "other"):
        run("remote", "add", remote, tmp_path / remote)
        run("push", "toy-opd:v1", "--remote", remote)
    killed(*BETWEEN, "--remote", "nas")
    assert names_of("nas") == ["team/toy:v1", "toy-opd:v1"]
    # Renames elsewhere are none of its business.
    run("mv", "toy-opd:v1", "elsewhere:v1", "--remote", "other")
    run("mv", "toy-opd:v1", "local:v1")
    assert names_of("nas") == ["team/toy:v1", "toy-opd:v1"]
    told = run("mv", "toy-opd:v1", "team/toy:v1", "--remote", "nas")
    assert told.out == f"team/toy:v1@{artifact}\n"
    assert "was interrupted: both name" in told.err
    assert (names_of("nas"), names_of("other"), names(run)) == (["team/toy:v1"], ["elsewhere:v1"], ["local:v1"])
    back = run("mv", "team/toy:v1", "toy-opd:v1", "--remote", "nas")
    assert "back with: maskreg mv toy-opd:v1 team/toy:v1 --remote nas" in back.err
    assert names_of("nas") == ["toy-opd:v1"]


def test_any_later_rename_finishes_it(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    killed(*BETWEEN)
    run("extract", pair[1], pair[0], "--name", "other")
    run("mv", "other", "another")
    assert names(run) == ["another", "team/toy:v1"]


def test_what_was_changed_since_stays_as_it_is(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    killed(*BETWEEN)
    run("annotate", "toy-opd:v1", "--description", "kept on purpose")
    assert "interrupted" not in run("list").err
    run("mv", "team/toy:v1", "third:v1")
    assert names(run) == ["third:v1", "toy-opd:v1"]


@pytest.mark.parametrize(("module", "step"), [("moving.Registry", "publish"), ("moving", "sealed")])
def test_before_the_first_step_nothing_has_happened(run: Run, artifact: str, module: str, step: str) -> None:
    killed(module, step)
    assert names(run) == ["toy-opd:v1"]
    assert "interrupted" not in run("list").err
    run("mv", "toy-opd:v1", "team/toy")
    assert names(run) == ["team/toy:v1"]


def test_a_second_step_that_fails_says_that_both_names_exist(
    run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConflictError("another was faster")

    with monkeypatch.context() as patch:
        patch.setattr(tags, "remove", refuse)
        told = run("mv", "toy-opd:v1", "team/toy", status=75).err
    assert "the rename of toy-opd:v1 to team/toy:v1 was interrupted: both name" in told
    assert "another was faster" in told
