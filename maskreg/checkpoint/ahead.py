"""Reading a checkpoint from end to end: spans in buckets are requested ahead, and blocks are read leaf by leaf.

A request to object storage takes longer than the work on what it brings. So tasks are drawn some time before they are
handed out, and what they read is requested when they are drawn::

    drawn        0 1 2 3 4 5              requests for 2..5 are on their way
    handed out   0 1                      threads work on 0 and 1

Every walk over the spans of a checkpoint goes through :func:`ahead`, wherever the checkpoint lies. On a disk nothing is
requested, and tasks go through as they come.

A block is eight times as large as a core's cache. Read whole, its beginning has left the cache when its end arrives,
and hashing it would wait for memory; so :class:`LeafReader` reads leaf by leaf::

    whole       read 16 leaves, hash 16 leaves                          each byte comes from memory twice
    leafwise    read leaf 0, hash it; read leaf 1, hash it; ...         once

A checkpoint that computes whole blocks is read block by block: each leaf would compute the block again. So is one that
is in memory, where a block is read without a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import LEAF_NUMEL
from maskreg.tensors.info import blocks_of

TaskT = TypeVar("TaskT")

AHEAD_BYTES = 96 << 20
"""Bytes that tasks wait for at most: of blocks of 8 MiB, twelve requests at a time."""


def ahead(
    tasks: Iterable[TaskT], reads: Callable[[TaskT], tuple[str, int, int] | None], *checkpoints: Checkpoint
) -> Iterator[TaskT]:
    """Tasks in their order, with the tensor and elements that each reads from buckets on its way; None for nothing."""
    waiting: deque[tuple[TaskT, int]] = deque()
    total = 0
    for task in tasks:
        size = 0
        if (span := reads(task)) is not None:
            size = sum(checkpoint.expect(*span) for checkpoint in checkpoints)
        waiting.append((task, size))
        total += size
        while waiting and (not total or total > AHEAD_BYTES):
            task, size = waiting.popleft()
            total -= size
            yield task
    yield from (task for task, _ in waiting)


def read_span(checkpoint: Checkpoint, name: str, start: int, stop: int) -> npt.NDArray[Any]:
    """Elements ``[start, stop)`` of a tensor, however many, in memory of their own."""
    width = checkpoint.tensors[name].item_bytes
    memory = np.empty((stop - start) * width, np.uint8)
    values: npt.NDArray[Any] = memory.view(np.dtype(f"<u{width}"))
    spans = ((start + first, start + last) for first, last in blocks_of(stop - start))
    for first, last in ahead(spans, lambda span: (name, *span), checkpoint):
        _read_into(values[first - start : last - start], checkpoint, name, first)
    return values


def _read_into(values: npt.NDArray[Any], checkpoint: Checkpoint, name: str, start: int) -> None:
    read = checkpoint.read(name, start, start + values.size, values.view(np.uint8))
    if not np.may_share_memory(read, values):
        values[:] = read


def blocks_ahead(name: str, numel: int, *checkpoints: Checkpoint) -> Iterator[tuple[int, int]]:
    """The blocks of a tensor in order, with what they hold on its way."""
    return ahead(blocks_of(numel), lambda span: (name, *span), *checkpoints)


class LeafReader:
    """A span of a tensor, and the memory that it is read into.

    Attributes:
        start, stop: elements of the tensor; ``start`` is a multiple of 2^18.
        values: unsigned integers of the element's width; right as far as :meth:`leaves` has come, and where the
            checkpoint has them in memory not to be written to.
    """

    def __init__(
        self, checkpoint: Checkpoint, name: str, start: int, stop: int, memory: npt.NDArray[np.uint8] | None = None
    ) -> None:
        """Read elements from ``start``, a multiple of 2^18, on, into uint8 memory of the span's size, if given."""
        self.start, self.stop = start, stop
        self._checkpoint, self._name = checkpoint, name
        width = checkpoint.tensors[name].item_bytes
        self._memory = np.empty((stop - start) * width, np.uint8) if memory is None else memory
        self.values: npt.NDArray[Any] = self._memory.view(np.dtype(f"<u{width}"))

    def leaves(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Read leaf after leaf: the first element's number in the tensor, and the values."""
        blockwise = self._checkpoint.blockwise
        if blockwise:
            self.values = self._checkpoint.read(self._name, self.start, self.stop, self._memory)
        for first in range(self.start, self.stop, LEAF_NUMEL):
            last = min(first + LEAF_NUMEL, self.stop)
            values = self.values[first - self.start : last - self.start]
            if not blockwise:
                _read_into(values, self._checkpoint, self._name, first)
            yield first, values
