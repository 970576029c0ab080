"""The program: help, suggestions, errors for people and programs, and what it costs to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from maskreg_cli import start
from maskreg_cli.exits import INTERRUPTED

from maskreg import __version__
from tests.cli.conftest import Run


def test_the_interpreter_runs_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "maskreg"]
    version = subprocess.run([*command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert version.stdout == f"maskreg {__version__}\n"
    wrong = subprocess.run([*command, "lst"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "'list'" in wrong.stderr
    assert "maskreg --help" in wrong.stderr


def test_an_interrupt_while_the_command_line_is_imported_ends_it_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "maskreg", "list"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "error: interrupted\n")
    # The script that is installed begins like the module.
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"maskreg": f"{start.__name__}:{start.main.__name__}"}


@pytest.mark.parametrize(
    ("args", "code", "status"),
    [
        (["show", "nothing-here", "--json"], "NOT_FOUND", 66),
        (["show", "--json", "--bad-option"], "USAGE", 2),
        (["show", "Not A Ref", "--json"], "NAME_INVALID", 2),
        (["no-such-command", "--json"], "USAGE", 2),
        (["--json", "no-such-command"], "USAGE", 2),
        (["config", "set", "no.such.key", "x", "--json"], "CONFIG", 78),
    ],
)
def test_programs_get_the_error_as_json(run: Run, args: list[str], code: str, status: int) -> None:
    done = run(*args, status=status)
    error = done.json["error"]
    assert set(error) == {"code", "message", "hint", "exit", "facts"}
    assert (error["code"], error["exit"]) == (code, status)
    assert error["message"] in done.err


def test_a_traceback_is_shown_on_request_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in run("show", "nothing-here", "--debug", status=66).err
    assert "Traceback" in run("--debug", "show", "nothing-here", status=66).err
    monkeypatch.setenv("MASKREG_DEBUG", "1")
    assert "Traceback" in run("show", "nothing-here", status=66).err
    monkeypatch.setenv("MASKREG_DEBUG", "0")
    assert "Traceback" not in run("show", "nothing-here", status=66).err


def test_a_bug_leaves_its_trace_in_a_file(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("maskreg.workspace.verbs.config.show", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = run("config", "show", "--json", status=70)
    (trace,) = tmp_path.glob("maskreg-trace-*.txt")
    assert str(trace) in done.err
    assert "Traceback" not in done.err
    assert "ZeroDivisionError: a bug" in trace.read_text()
    assert json.loads(done.out)["error"]["exit"] == 70
