"""Progress of work, as one line: redrawn in place at a terminal, written every half minute elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

import click

from maskreg.ref import printable
from maskreg.words import human_bytes, percent

from .table import width

SILENCE_SECONDS = 1.0
"""Silence at a terminal that needs no word."""

LINE_SECONDS = 30.0
"""Without a terminal, the time between two lines."""

_INTERVAL_SECONDS = 0.5


class Line:
    """Says what a command does and how far it is, on a thread of its own; implements ``maskreg.progress.Progress``.

    Nothing is said about work that ends sooner than the first line is due.

    Args:
        command: the command's name.
        in_place: draw the line at a terminal whenever nothing was printed for ``SILENCE_SECONDS``, and wipe it when
            something is; else write one every ``LINE_SECONDS``.
        after_pipe: draw nothing before the first phase: the command before the pipe has the terminal.
    """

    def __init__(self, command: str, *, in_place: bool, after_pipe: bool = False) -> None:
        self._command = command
        self._in_place = in_place
        self._after_pipe = after_pipe
        self._hidden = int(after_pipe)
        self._phase = ("", 0, 0)  # label, bytes in all, bytes done
        self._began = self._phase_began = self._sign = time.monotonic()
        self._drawn = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="maskreg-progress", daemon=True)

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase, and end the one before."""
        with self._lock:
            self._phase, self._phase_began = (label, total_bytes, 0), time.monotonic()
            self._hidden -= self._after_pipe
            self._after_pipe = False

    def advance(self, n_bytes: int) -> None:
        """Count ``n_bytes`` as done."""
        with self._lock:
            label, total, done = self._phase
            self._phase = (label, total, done + n_bytes)

    def clear(self) -> None:
        """Wipe the line, because something is printed now; silence begins again."""
        with self._lock:
            self._wipe()

    def hide(self) -> None:
        """Draw nothing until :meth:`show`: a question has the terminal."""
        with self._lock:
            self._wipe()
            self._hidden += 1

    def show(self) -> None:
        """Undo one :meth:`hide`."""
        with self._lock:
            self._hidden -= 1
            self._sign = time.monotonic()

    def __enter__(self) -> Line:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.clear()

    def _draw(self) -> None:
        while not self._over.wait(min(_INTERVAL_SECONDS, SILENCE_SECONDS) if self._in_place else LINE_SECONDS):
            with self._lock:
                now = time.monotonic()
                if not self._in_place:
                    click.echo(printable(self._text(now)), err=True)
                elif not self._hidden and now - self._sign >= SILENCE_SECONDS:
                    # The cursor goes back to the start, so that output of other code begins there.
                    line = printable(f"… {self._text(now)}")
                    sys.stderr.write(f"\r\x1b[K{line[: width(80) - 1]}\r")
                    sys.stderr.flush()
                    self._drawn = True

    def _text(self, now: float) -> str:
        label, total, done = self._phase
        text = f"{self._command}: {label}" if label not in ("", self._command) else self._command
        if not total or not done:
            return f"{text}, {now - self._began:,.0f} s"
        speed = done / max(now - self._phase_began, 1e-3)
        left = f"{max(total - done, 0) / speed:,.0f} s left"
        return f"{text}, {percent(min(done / total, 1.0))} of {human_bytes(total)}, {human_bytes(int(speed))}/s, {left}"

    def _wipe(self) -> None:
        self._sign = time.monotonic()
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
