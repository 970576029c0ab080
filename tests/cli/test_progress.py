"""The line that says what a command does and how far it is: for long work only, and in the way of nothing."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable

import click
import pytest
from maskreg_cli import progress
from maskreg_cli.output import Output

from maskreg.progress import SILENT
from tests.cli import terminal
from tests.cli.terminal import Terminal

WIPED = "\r\x1b[K"


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal at which silence is short."""
    monkeypatch.setattr(progress, "SILENCE_SECONDS", 0.01)
    return terminal.watch(monkeypatch)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen within ten seconds")


@pytest.mark.parametrize("place", ["terminal", "file"])
def test_short_work_says_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal.watch(monkeypatch) if place == "terminal" else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with Output().at_work("compare"), (output := Output()).progress() as told:
        told.start("read", 100)
        told.advance(100)
    assert output.line is None
    assert screen.getvalue() == ""


def test_without_a_terminal_a_line_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.001)
    output = Output()
    with output.at_work("analyze"), output.progress() as told:
        until(lambda: "analyze, 0 s\n" in screen.getvalue())
        told.start("measure", 4 << 30)
        told.advance(1 << 30)
        until(lambda: "analyze: measure, 25.0 % of 4.0 GiB, " in screen.getvalue())
        until(lambda: " s left\n" in screen.getvalue())


def test_silence_is_explained_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output()
    with output.at_work("compare"), output.progress() as told:
        until(lambda: "… compare, 0 s\r" in screen.getvalue())
        told.start("read masks", 0)
        until(lambda: "… compare: read masks, 0 s\r" in screen.getvalue())
        told.start("compare", 4 << 30)
        told.advance(1 << 30)
        until(lambda: "… compare, 25.0 % of 4.0 GiB, " in screen.getvalue())
        output.note("done")
        assert f"{WIPED}done\n" in screen.getvalue()
        until(lambda: screen.getvalue().endswith("left\r"))
    assert screen.getvalue().endswith(WIPED)
    assert output.line is None


def test_nothing_is_drawn_beside_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output()

    def confirm(question: str, **_: bool) -> bool:
        before = screen.getvalue()
        assert before.endswith(WIPED)
        time.sleep(0.1)
        assert screen.getvalue() == before
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    with output.at_work("rm"):
        until(lambda: "… rm, " in screen.getvalue())
        assert output.ask("remove a?")
        before = screen.getvalue()
        until(lambda: screen.getvalue() != before)


@pytest.mark.parametrize("reason", ["quiet", "no terminal", "dumb", ""])
def test_nothing_is_drawn(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    if reason == "no terminal":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    if reason in ("dumb", ""):
        monkeypatch.setenv("TERM", reason)
    output = Output(quiet=reason == "quiet")
    with output.at_work("compare"), output.progress() as told:
        assert (told is SILENT) == (reason == "quiet")
        time.sleep(0.1)
    assert screen.getvalue() == ""


def test_the_command_before_a_pipe_has_the_terminal_until_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    end, inlet = os.pipe()
    with os.fdopen(end) as stdin, os.fdopen(inlet, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        output = Output()
        with output.at_work("apply"), output.progress() as told:
            time.sleep(0.1)
            assert screen.getvalue() == ""
            told.start("patch", 0)
            until(lambda: "… apply: patch, 0 s\r" in screen.getvalue())
