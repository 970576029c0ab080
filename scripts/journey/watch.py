"""Runs commands in view: their output as it comes, and a count of seconds while one is silent.

On a terminal, each command gets a terminal of its own, so that it colors and animates as it does for its user::

    command --(pseudo-terminal)--> Watch --> the terminal
                                     \\--> "… compare, 4 s", wiped at the next output of the command
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SILENCE_ON_TERMINAL = 2.0
"""Seconds of silence after which a terminal shows that the demo waits."""

SILENCE_IN_LOG = 4.0
"""The same in a log, where every such remark is a line."""

PAUSE_IN_LOG = 4.0
"""Seconds between two such lines in a log."""


class Watch:
    """One command, watched.

    Attributes:
        label: of the command, beside the seconds.
        terminal: whether people watch on a terminal.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.terminal = sys.stdout.isatty()
        self._ticking = False
        self._at_line_start = True
        self._start = time.monotonic()
        self._last_tick = -PAUSE_IN_LOG

    def run(
        self, argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path, show: Callable[[bytes], None] | None = None
    ) -> int:
        """Run a command to its end; its input is empty.

        Args:
            argv: program and arguments.
            env: its environment.
            cwd: its working folder.
            show: receives its output in pieces, instead of the screen.

        Returns:
            Its exit code; that of a signal as shells write it, 128 and its number.
        """
        sys.stdout.flush()
        end, inlet = _terminal() if self.terminal and show is None else os.pipe()
        with subprocess.Popen(
            argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=inlet, stderr=inlet
        ) as process:
            os.close(inlet)
            try:
                self._follow(end, show or self._print)
            finally:
                os.close(end)
        self._wipe()
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _follow(self, end: int, show: Callable[[bytes], None]) -> None:
        sign = self._start = time.monotonic()
        while True:
            ready, _, _ = select.select([end], [], [], 0.5)
            now = time.monotonic()
            if ready:
                data = _read(end)
                if not data:
                    return
                self._wipe()
                show(data)
            elif now - sign < self._patience:
                continue
            elif self._at_line_start:
                self._tick(now - self._start)
            sign = now

    def announce(self) -> None:
        """Show the label now; in a log, unless it has just been shown."""
        if self.terminal or time.monotonic() - self._last_tick > PAUSE_IN_LOG:
            self._tick(time.monotonic() - self._start)

    @property
    def _patience(self) -> float:
        """Seconds without output after which the next sign of life is due."""
        if not self.terminal:
            return SILENCE_IN_LOG
        return 1.0 if self._ticking else SILENCE_ON_TERMINAL

    def _print(self, data: bytes) -> None:
        self._at_line_start = data.endswith(b"\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _tick(self, seconds: float) -> None:
        line = f"  … {self.label}, {seconds:.0f} s"
        if self.terminal:
            line = "\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1]
        print(line, end="" if self.terminal else "\n", flush=True)
        self._ticking = self.terminal
        self._last_tick = time.monotonic()

    def _wipe(self) -> None:
        if self._ticking:
            print("\r\x1b[K", end="", flush=True)
            self._ticking = False


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal of the size of ours: where its output is read, and where it is written."""
    import fcntl
    import pty
    import struct
    import termios

    end, inlet = pty.openpty()
    size = shutil.get_terminal_size()
    fcntl.ioctl(inlet, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))
    return end, inlet


def _read(end: int) -> bytes:
    try:
        return os.read(end, 1 << 16)
    except OSError as error:
        # Linux says so when the last program that writes to a pseudo-terminal is gone.
        if error.errno != errno.EIO:
            raise
        return b""
