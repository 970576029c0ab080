"""Progress of work: a bar at a terminal when it takes over a second, a line every half minute elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from maskreg.ref import printable
from maskreg.words import human_bytes, percent

from .table import width

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


DELAY_SECONDS = 1.0
"""A phase that ends sooner is not drawn."""

LINE_SECONDS = 30.0
"""Without a terminal, the time between two lines."""

PREPARE = "prepare"
"""What a command does before its first phase: it opens libraries and files of unknown size."""


class Bars:
    """Draws one bar for each phase; implements ``maskreg.progress.Progress``.

    The bar appears ``DELAY_SECONDS`` after its phase began and is erased when the phase ends. Before, and where a
    phase does not advance, ``waiting`` says what is done.
    """

    def __init__(self, waiting: Waiting | None = None) -> None:
        self._waiting = waiting
        self._lock = threading.Lock()
        self._label = ""
        self._total = 0
        self._done = 0
        self._began = 0.0
        self._drawn: RichProgress | None = None
        self._task: TaskID | None = None

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase, and end the one before."""
        with self._lock:
            self._stop()
            self._label, self._total, self._done = label, total_bytes, 0
            self._began = time.monotonic()
            if self._waiting is not None:
                self._waiting.phase = label

    def advance(self, n_bytes: int) -> None:
        """Count ``n_bytes`` as done, and draw the bar if the phase has lasted long enough."""
        with self._lock:
            self._done += n_bytes
            if self._drawn is None and time.monotonic() - self._began >= DELAY_SECONDS:
                self._draw()
            elif self._drawn is not None and self._task is not None:
                self._drawn.update(self._task, completed=self._done)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._drawn = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        if self._waiting is not None:
            self._waiting.hide()
        self._task = self._drawn.add_task(self._label, total=self._total or None, completed=self._done)
        self._drawn.start()

    def pause(self) -> None:
        """Draw nothing until there is more to draw: a question has the terminal."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
            if self._waiting is not None:
                self._waiting.show()
        self._drawn = self._task = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stop()


class Lines:
    """Writes a line to stderr every ``LINE_SECONDS``; implements ``maskreg.progress.Progress``.

    Nothing is written about work that ends sooner.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = (PREPARE, 0, 0)  # label, bytes in all, bytes done
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase, and end the one before."""
        with self._lock:
            self._phase = (label, total_bytes, 0)

    def advance(self, n_bytes: int) -> None:
        """Count ``n_bytes`` as done."""
        with self._lock:
            label, total, done = self._phase
            self._phase = (label, total, done + n_bytes)

    def _write(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            with self._lock:
                label, total, done = self._phase
            share = f": {percent(min(done / total, 1.0))} of {human_bytes(total)}" if total else ""
            click.echo(printable(f"{label}{share}, {time.monotonic() - self._began:,.0f} s"), err=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


SILENCE_SECONDS = 1.0
"""Silence that needs no word."""

_INTERVAL_SECONDS = 0.5

_OWN = {"__main__", "maskreg", "maskreg_cli", "maskreg_migrations"}

_WORDS = {"matplotlib.font_manager": "listing this machine's fonts, once"}
"""Modules that do more than load."""


class Waiting:
    """The line of one command, drawn by a thread of its own; a context manager.

    Attributes:
        command: the command's name.
        phase: what the command said last that it does; empty for nothing yet.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.phase = ""
        self._began = self._sign = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._hidden = 0
        self._drawn = False

    def clear(self) -> None:
        """Wipe the line, because something is printed now; silence begins again."""
        with self._lock:
            self._wipe()
            self._sign = time.monotonic()

    def hide(self) -> None:
        """Draw nothing until :meth:`show`: a bar or a question has the terminal."""
        with self._lock:
            self._wipe()
            self._hidden += 1

    def show(self) -> None:
        """Undo one :meth:`hide`."""
        with self._lock:
            self._hidden -= 1
            self._sign = time.monotonic()

    def __enter__(self) -> Waiting:
        threading.Thread(target=self._follow, name="maskreg-waiting", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.clear()

    def _follow(self) -> None:
        while not self._over.wait(min(_INTERVAL_SECONDS, SILENCE_SECONDS)):
            phase = "" if self.phase == self.command else self.phase
            doing = loading() or phase
            with self._lock:
                now = time.monotonic()
                if not self._hidden and not self._over.is_set() and now - self._sign >= SILENCE_SECONDS:
                    self._draw(f"… {self.command}{': ' if doing else ''}{doing}, {now - self._began:.0f} s")

    def _draw(self, line: str) -> None:
        # The cursor goes back to the start, so that output of other code begins there.
        sys.stderr.write(f"\r\x1b[K{line[: width(80) - 1]}\r")
        sys.stderr.flush()
        self._drawn = True

    def _wipe(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


def loading() -> str:
    """What is being imported at this moment, outermost first, as ``loading torch``; empty for nothing."""
    names = [name for name, module in sys.modules.copy().items() if _is_initializing(module)]
    for name in reversed(names):
        if name in _WORDS:
            return _WORDS[name]
    packages = [name.partition(".")[0] for name in names]
    for package in packages:
        if package not in _OWN and package not in sys.stdlib_module_names:
            return f"loading {package}"
    return ""


def _is_initializing(module: object) -> bool:
    # Python's own mark for a module whose code is still running, by which it explains circular imports.
    spec = getattr(module, "__dict__", {}).get("__spec__")
    return getattr(spec, "_initializing", False) is True
