"""Reading an artifact once for all processes: each reads its share of the objects, and gives others what they need.

An object must be hashed whole before any byte of it is used, but the blocks of one process lie scattered over all
objects. So processes take turns in reading objects, and send each other the bytes of their blocks::

    objects      0    1    2    3         processes 0 and 1 read 0, 2 and 1, 3
    blocks      aab  bba  abb  aaa        process 0 keeps a, process 1 keeps b

Each process thus reads its share of the artifact once, for both passes, and keeps the bytes of its own blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.live.processes import Processes
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
        tasks = processes.together(
            lambda: [(array, rows) for array in arrays for rows in self._artifacts[array[0]].rows_of_objects(array[1])]
        )
        tasks = [task for task in tasks if any(True for each in needs.values() for _ in _common(task, each))]
        me, count = processes.ranks.index(processes.rank), len(processes.ranks)
        for first in range(me, len(tasks) + me, count):
            parcels = processes.together(partial(self._parcels, tasks[first : first + 1], needs))
            for parcel in processes.deliver(parcels).values():
                for array, span, low, data in parcel:
                    self._data[array, span][low - span[0] :][: data.size] = data

    def _parcels(
        self, tasks: Sequence[tuple[Array, Span]], needs: Mapping[int, dict[Array, list[Span]]]
    ) -> dict[int, list[tuple[Array, Span, int, Bytes]]]:
        """What each process needs of an object: bytes of an array, and in which span they are, from where on."""
        parcels: dict[int, list[tuple[Array, Span, int, Bytes]]] = defaultdict(list)
        for array, (start, stop) in tasks:
            data = np.zeros(stop - start, np.uint8)
            self._artifacts[array[0]].read_bytes(array[1], start, stop, data)
            self.read_bytes += data.size
            for rank, of in needs.items():
                for span, low, high in _common((array, (start, stop)), of):
                    parcels[rank].append((array, span, low, data[low - start : high - start]))
        return parcels

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
