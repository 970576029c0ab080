"""One process that has a model to itself, where others can be: the same calls, of which none sends anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


class Alone:
    """Stands for :class:`maskreg.live.processes.Processes`; needs no torch."""

    rank = 0
    ranks = (0,)

    def together(self, work: Callable[[], T]) -> T:
        """Do work."""
        return work()

    def gathered(self, value: T) -> list[T]:
        """The value."""
        return [value]

    def require_same(self, value: object, subject: str) -> None:
        """No other process can have something else."""

    def deliver(self, parcels: Mapping[int, T]) -> dict[int, T]:
        """What this process sends to itself."""
        return {**parcels}
