"""Commands at a terminal: a pseudo-terminal of the system, or a stream that says it is one."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from tests.e2e.running import MASKREG


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal of 100 columns.

    Called by the test itself: the test runner puts its own stderr in place after the fixtures.
    """
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return screen


def answered(monkeypatch: pytest.MonkeyPatch, answer: str) -> Terminal:
    """Make stdin a terminal at which this is typed, and stderr one that is returned."""
    typed, screen = Terminal(answer), watch(monkeypatch)
    monkeypatch.setattr(sys, "stdin", typed)

    def ask(prompt: str) -> str:
        screen.write(prompt)
        return typed.readline().rstrip("\n")

    # In place of Python's input(), which needs a terminal of the system.
    monkeypatch.setattr("click.termui.visible_prompt_func", ask)
    return screen


def at_terminal(columns: int, *args: str) -> str:
    """What a command writes to a terminal of so many columns.

    Args:
        columns: of the terminal.
        args: the command and its arguments.
    """
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen([MASKREG, *args], stdin=end, stdout=end, stderr=subprocess.PIPE, env=environment)
    os.close(end)
    shown = b""
    try:
        # A terminal holds a few kilobytes: a command waits until they are read.
        while data := os.read(terminal, 1 << 16):
            shown += data
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(terminal)
    _, error = process.communicate()
    assert process.returncode == 0, error
    return shown.decode()
