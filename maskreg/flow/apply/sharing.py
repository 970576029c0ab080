"""Reading an artifact once for all processes: each reads its share of the objects, and gives others what they need.

An object must be hashed whole before any byte of it is used, but the blocks of one process lie scattered over all
objects. So processes take turns in reading objects, and send each other the bytes of their blocks::

    objects      0    1    2    3         processes 0 and 1 read 0, 2 and 1, 3
    blocks      aab  bba  abb  aaa        process 0 keeps a, process 1 keeps b

Each process thus reads its share of the artifact once, for both passes, and keeps the bytes of its own blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import torch

from maskreg.artifact.reader import Artifact
from maskreg.live.processes import FAILURES, Processes
from maskreg.update.delta import Payload, Stored

Bytes = npt.NDArray[np.uint8]

Array = tuple[int, str]
"""The number of an artifact, and an array of it."""

Span = tuple[int, int]


class Kept:
    """Bytes that this process needs, in memory; a :class:`maskreg.update.delta.Payload` for each.

    ``read_bytes`` are those that it read from its store, for itself and others.
    """

    def __init__(self, needs: Iterable[Stored], artifacts: list[Artifact]) -> None:
        """Make room for what is needed."""
        self._numbers = {id(artifact): number for number, artifact in enumerate(artifacts)}
        self._artifacts = artifacts
        self._data: dict[tuple[Array, Span], Bytes] = {
            (self._array(need), (need.start, need.stop)): np.zeros(need.stop - need.start, np.uint8) for need in needs
        }
        self.n_bytes = sum(data.size for data in self._data.values())
        self.read_bytes = 0

    def __getitem__(self, need: Stored) -> Bytes:
        return self._data[self._array(need), (need.start, need.stop)]

    def payload(self, need: Stored) -> Payload:
        """Gives out bytes that were read."""
        data = self[need]
        return lambda buffers: data

    def read(self, processes: Processes) -> None:
        """Read what all processes need; every process must call it."""
        own: dict[Array, list[Span]] = {}
        for array, span in sorted(self._data):
            own.setdefault(array, []).append(span)
        needs = dict(zip(processes.ranks, processes.gathered(own), strict=True))
        arrays = sorted({array for each in needs.values() for array in each})
        # An error must not keep others waiting, so it is told when all is read.
        failures: list[BaseException] = []
        tasks = processes.together(
            lambda: [(array, rows) for array in arrays for rows in self._artifacts[array[0]].rows_of_objects(array[1])]
        )
        tasks = [task for task in tasks if any(True for each in needs.values() for _ in _common(task, each))]
        count = len(processes.ranks)
        for first in range(0, len(tasks), count):
            turn = dict(zip(processes.ranks, tasks[first : first + count], strict=False))
            self._take_turn(processes, turn, needs, failures)
        processes.together(lambda: raise_first(failures))

    def _take_turn(
        self,
        processes: Processes,
        turn: dict[int, tuple[Array, Span]],
        needs: dict[int, dict[Array, list[Span]]],
        failures: list[BaseException],
    ) -> None:
        """Each process reads one object, and gives away its bytes."""
        me, sent = processes.rank, {}
        if me in turn:
            (number, name), (start, stop) = task = turn[me]
            data = np.zeros(stop - start, np.uint8)
            try:
                self._artifacts[number].read_bytes(name, start, stop, data)
                self.read_bytes += data.size
            except FAILURES as error:
                failures.append(error)
            for rank, of in needs.items():
                parts = [data[lo - start : hi - start] for _, lo, hi in _common(task, of)]
                if rank == me:
                    self._keep(task, of, parts)
                elif parts:
                    sent[rank] = [torch.from_numpy(part) for part in parts]
        own = needs[me]
        expected = {rank: sum(hi - lo for _, lo, hi in _common(task, own)) for rank, task in turn.items() if rank != me}
        received = processes.exchange(sent, {rank: n for rank, n in expected.items() if n})
        for rank, tensor in received.items():
            sizes = [hi - lo for _, lo, hi in _common(turn[rank], own)]
            parts = np.split(tensor.cpu().numpy(), np.cumsum(sizes)[:-1])
            self._keep(turn[rank], own, parts)

    def _keep(self, task: tuple[Array, Span], own: dict[Array, list[Span]], parts: Iterable[Bytes]) -> None:
        for (span, lo, hi), part in zip(_common(task, own), parts, strict=True):
            self._data[task[0], span][lo - span[0] : hi - span[0]] = part

    def _array(self, need: Stored) -> Array:
        return self._numbers[id(need.artifact)], need.array


def _common(task: tuple[Array, Span], needs: dict[Array, list[Span]]) -> Iterator[tuple[Span, int, int]]:
    """The spans of which an object has bytes, and the first and one past the last of these."""
    array, (start, stop) = task
    spans = needs.get(array, [])
    # Spans of one array do not overlap, so they are in the order of their ends too.
    for span in spans[bisect_right(spans, start, key=lambda each: each[1]) :]:
        if span[0] >= stop:
            return
        yield span, max(span[0], start), min(span[1], stop)


def raise_first(failures: list[BaseException]) -> None:
    """Raise the first error, if there was one."""
    if failures:
        raise failures[0]
