"""What a command waits for, at a terminal: one line that is wiped as soon as there is something to print.

A command may be silent for seconds before its first bar: it loads torch, lists fonts, or asks a bucket. After a second
without a sign of life a line says so, and counts::

    … analyze: loading torch, 3 s
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from .layout import width

DELAY_SECONDS = 1.0
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
        while not self._over.wait(min(_INTERVAL_SECONDS, DELAY_SECONDS)):
            phase = "" if self.phase == self.command else self.phase
            doing = loading() or phase
            with self._lock:
                now = time.monotonic()
                if not self._hidden and not self._over.is_set() and now - self._sign >= DELAY_SECONDS:
                    self._draw(f"… {self.command}{': ' if doing else ''}{doing}, {now - self._began:.0f} s")

    def _draw(self, line: str) -> None:
        # The cursor goes back to the start, so that whatever prints without asking begins there.
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
