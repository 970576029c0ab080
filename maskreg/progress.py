"""Progress of long work, reported to a listener that the work does not know.

Work runs on many threads, and whichever finishes a block reports it, so a listener must be thread-safe. The total is
known at the start of a phase; a phase ends where the next one starts, or with the work::

    start("read", 100)   advance(60) advance(40)   start("write", 50)   advance(50)

Work on very many small things is told by their number instead: each thousand is a phase, whose label counts
(:func:`counting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Receives the progress of one piece of work, in bytes; thread-safe."""

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase.

        Args:
            label: names the phase, in the imperative.
            total_bytes: how many bytes it will handle.
        """

    def advance(self, n_bytes: int) -> None:
        """Add ``n_bytes`` to what the current phase has done."""


class Silent:
    """A listener that ignores everything."""

    def start(self, label: str, total_bytes: int) -> None:
        """Ignore."""

    def advance(self, n_bytes: int) -> None:
        """Ignore."""


SILENT = Silent()
"""The default listener."""

_EVERY = 1_000


def counting(progress: Progress, label: str, things: Iterable[T], *, total: int = 0) -> Iterator[T]:
    """Pass things on one by one, and report how many it were: ``list names: 12,000 of 1,000,000``.

    ``total``: how many there are; 0 when unknown.
    """
    of = f" of {total:,}" if total else ""
    progress.start(label, 0)
    for number, thing in enumerate(things, 1):
        if not number % _EVERY:
            progress.start(f"{label}: {number:,}{of}", 0)
        yield thing
