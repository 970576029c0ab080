"""What the training of the demo says: on a terminal one line that moves, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time

PAUSE_IN_LOG = 10.0
"""Seconds between two lines where nobody watches a terminal."""


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)


class Steps:
    """Progress of a number of equal steps: step, figure and time left.

    Attributes:
        name: of what is being done.
        total: number of steps.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self._start = self._said = time.monotonic()

    def done(self, step: int, figure: str) -> None:
        """Say that ``step`` steps are done, as often as somebody can read it, and always after the last."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if step < self.total and now - self._said < (0.2 if terminal else PAUSE_IN_LOG):
            return
        self._said = now
        left = (now - self._start) / step * (self.total - step)
        line = f"  {self.name}: step {step} of {self.total}, {figure}, {left:.0f} s left"
        end = "\n" if step == self.total or not terminal else ""
        print(f"\r\x1b[K{line}" if terminal else line, end=end, file=sys.stderr, flush=True)
