"""A command that is silent for long says at a terminal what it does, and makes room for whatever is printed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from maskreg_cli import progress as bars
from maskreg_cli import progress as waiting
from maskreg_cli.output import Output
from maskreg_cli.progress import Waiting, loading

from tests.cli import terminal
from tests.cli.terminal import Terminal


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(waiting, "SILENCE_SECONDS", 0.01)
    return terminal.watch(monkeypatch)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen within ten seconds")


def test_silence_is_explained_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output()
    with output.at_work("remote add"):
        until(lambda: "… remote add, 0 s\r" in screen.getvalue())
        with output.alone():
            before = screen.getvalue()
            assert before.endswith("\r\x1b[K")
            time.sleep(0.1)
            assert screen.getvalue() == before
        until(lambda: screen.getvalue() != before)
        output.note("done")
        assert "\r\x1b[Kdone\n" in screen.getvalue()
        until(lambda: screen.getvalue().endswith("s\r"))
    assert screen.getvalue().endswith("\r\x1b[K")
    assert output.waiting is None


def test_it_names_the_phase_until_the_bar_does(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output()
    with output.at_work("compare"), output.progress() as progress:
        progress.start("read masks", 10)
        until(lambda: "… compare: read masks, " in screen.getvalue())
        monkeypatch.setattr(bars, "DELAY_SECONDS", 0.0)
        progress.start("draw", 10)
        progress.advance(5)
        drawn = screen.getvalue()
        time.sleep(0.1)
        assert "… compare" not in screen.getvalue()[len(drawn) :]
        progress.advance(5)


def test_it_names_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    code = "import sys, time\nfor _ in range(2000):\n    if 'loading slow' in sys.stderr.getvalue():\n        break\n"
    (tmp_path / "slow_library.py").write_text(code + "    time.sleep(0.005)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Output().at_work("compare"):
        __import__("slow_library")
    assert "\r\x1b[K… compare: loading slow_library, 0 s\r" in screen.getvalue()
    assert loading() == ""


@pytest.mark.parametrize("reason", ["quiet", "no terminal", "dumb"])
def test_nothing_is_shown(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    if reason == "no terminal":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    if reason == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    output = Output(quiet=reason == "quiet")
    with output.at_work("compare"):
        assert output.waiting is None
        output.make_room()
    assert screen.getvalue() == ""


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    with Waiting("a command with a long name"):
        until(lambda: bool(screen.getvalue()))
    assert screen.getvalue().startswith("\r\x1b[K… a command with a \r")


def test_the_command_before_a_pipe_has_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    end, inlet = os.pipe()
    with os.fdopen(end) as stdin, os.fdopen(inlet, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        with Output().at_work("apply"):
            time.sleep(0.1)
    assert screen.getvalue() == ""


def test_nothing_is_drawn_beside_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output()
    questions: list[str] = []

    def confirm(question: str, **_: bool) -> bool:
        before = screen.getvalue()
        time.sleep(0.1)
        assert screen.getvalue() == before
        assert before.endswith("\r\x1b[K")
        questions.append(question)
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    with output.at_work("rm"):
        until(lambda: "… rm, " in screen.getvalue())
        assert output.ask("remove a?")
    assert questions == ["remove a?"]
