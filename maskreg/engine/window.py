"""Which batches are where: handed out, finished and not yet taken, or to be handed out again.

It decides, and knows nothing of how batches travel::

    drawn        0 1 2 3 4 5 6 7         as long as there is room for what comes back, by measured bytes
    worker a     2 4                     one is worked on, one waits behind it
    worker b     3 5
    finished     1 6                     in the cluster's memory; 6 waits for 2 to 5
    taken        0
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from maskreg.engine.worker import Packed

WorkerT = TypeVar("WorkerT")

DEPTH = 2
"""Batches that a worker has at a time: while it works on one, the next is on its way."""

WAITING = 2
"""Finished batches per worker that wait for an earlier one at most."""


@dataclass(eq=False)
class Batch(Generic[WorkerT]):
    """Tasks that go together, kept until their results are taken; ``worker`` is None where they must be handed out.

    ``packed``: what became of them; None while they are worked on. ``ticket``: what the cluster knows them by.
    """

    tasks: Sequence[Any]
    near: str = ""
    worker: WorkerT | None = None
    packed: Packed | None = None
    deaths: int = 0
    ticket: Any = None


@dataclass
class Window(Generic[WorkerT]):
    """The batches that are drawn and not taken, in their order.

    Attributes:
        max_bytes: of results that wait to be taken, as far as is known before they are there.
    """

    max_bytes: int
    workers: list[WorkerT] = field(default_factory=list)
    _batches: deque[Batch[WorkerT]] = field(default_factory=deque)
    _largest: int = 0
    _homes: dict[str, WorkerT] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch[WorkerT]) -> None:
        """Append a batch."""
        self._batches.append(batch)

    @property
    def front(self) -> Batch[WorkerT]:
        """The batch whose results come next."""
        return self._batches[0]

    def take(self) -> None:
        """Drop the front."""
        self._batches.popleft()

    def has_room(self) -> bool:
        """Whether another batch can be drawn: its results will have room, and a worker can begin soon."""
        if not self._batches:
            return True
        unfinished = sum(batch.packed is None for batch in self._batches)
        finished = sum(batch.packed.size for batch in self._batches if batch.packed is not None)
        workers = max(1, len(self.workers))
        return (
            unfinished < DEPTH * workers
            and len(self._batches) < (DEPTH + WAITING) * workers
            and finished + (unfinished + 1) * self._largest <= self.max_bytes
        )

    def finish(self, batch: Batch[WorkerT], packed: Packed) -> None:
        """Keep what became of a batch."""
        batch.packed, self._largest = packed, max(self._largest, packed.size)

    def to_hand_out(self) -> Iterator[Batch[WorkerT]]:
        """Batches that no worker has, each with the worker that gets it, as long as one is not behind."""
        for batch in self._batches:
            if batch.worker is None and batch.packed is None:
                batch.worker = self._choose(batch.near)
                if batch.worker is None:
                    return
                yield batch

    def running(self) -> list[Batch[WorkerT]]:
        """Batches that a worker has."""
        return [batch for batch in self._batches if batch.worker is not None and batch.packed is None]

    def lose(self, worker: WorkerT) -> list[Batch[WorkerT]]:
        """Take back what a worker has, because it died."""
        self._homes = {near: home for near, home in self._homes.items() if home is not worker}
        lost = [batch for batch in self.running() if batch.worker is worker]
        for batch in lost:
            batch.worker = batch.ticket = None
        return lost

    def _choose(self, near: str) -> WorkerT | None:
        loads = Counter(id(batch.worker) for batch in self.running())
        home = self._homes.get(near)
        if home is not None and loads[id(home)] < DEPTH:
            return home
        idlest = min(self.workers, key=lambda worker: loads[id(worker)], default=None)
        if idlest is None or loads[id(idlest)] >= DEPTH:
            return None
        if near and home is None:
            self._homes[near] = idlest
        return idlest
