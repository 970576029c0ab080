"""Progress bars: drawn for long work only."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest
from maskreg_cli import progress as bars
from maskreg_cli.output import Output
from maskreg_cli.progress import Bars

from maskreg.extras import compile_hint
from maskreg.native import NUMPY, using
from maskreg.progress import SILENT
from tests.cli.terminal import watch


def test_short_work_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    with Output().progress() as progress:
        progress.start("compare", 100)
        progress.advance(100)
    assert screen.getvalue() == ""


def test_long_work_draws_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    monkeypatch.setattr(bars, "DELAY_SECONDS", 0.0)
    with Bars() as progress:
        progress.start("compare", 4 << 30)
        progress.advance(1 << 30)
        progress.advance(1 << 30)
        progress.start("write", 10)
        progress.advance(10)
    drawn = screen.getvalue()
    assert "compare" in drawn
    assert "write" in drawn
    assert "/4.0 GiB" in drawn


def test_without_a_terminal_a_line_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.001)
    with Output().progress() as progress:
        wait_for(sys.stderr, "prepare, 0 s\n")
        progress.start("analyze", 4 << 30)
        progress.advance(1 << 30)
        wait_for(sys.stderr, "analyze: 25.0 % of 4.0 GiB, 0 s\n")


def test_short_work_writes_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    assert bars.LINE_SECONDS <= 30
    with Output().progress() as progress:
        progress.start("compare", 100)
        progress.advance(100)
    assert screen.getvalue() == ""


def wait_for(screen: Any, words: str) -> None:
    """Wait until another thread has written it; a test that waits in vain fails by the suite's own limit."""
    while words not in screen.getvalue():
        time.sleep(0.001)


def test_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    output = Output(quiet=True)
    output.note("a note")
    with output.progress() as progress:
        assert progress is SILENT
    assert screen.getvalue() == ""


def test_people_are_told_that_the_kernels_are_not_compiled(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASKREG_KERNELS", raising=False)
    screen = watch(monkeypatch)
    Output(quiet=True).note_slow_kernels()
    assert (compile_hint() in screen.getvalue()) == (kernels == NUMPY)


def test_no_hint_to_compile_what_was_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKREG_KERNELS", NUMPY)
    screen = watch(monkeypatch)
    with using(NUMPY):
        Output().note_slow_kernels()
    assert screen.getvalue() == ""
