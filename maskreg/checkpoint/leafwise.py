"""Reading a span of a tensor leaf by leaf, so that what is done with a leaf finds it in the core's cache.

A block is eight times as large as that cache. Read whole, its beginning has left the cache when its end is there, and
hashing it would wait for memory::

    whole       read 16 leaves, hash 16 leaves                          each byte comes from memory twice
    leafwise    read leaf 0, hash it; read leaf 1, hash it; ...         once

A checkpoint that computes whole blocks is read whole all the same: each leaf would compute the block again. So is one
whose blocks are in memory already, as they came from a bucket: they are used where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Blockwise, Checkpoint
from maskreg.digest import LEAF_NUMEL


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
        """Nothing is read yet.

        Args:
            checkpoint: to read from.
            name: of the tensor.
            start: first element, a multiple of 2^18.
            stop: one past the last.
            memory: uint8 of the span's size; new memory when left out.
        """
        self.start, self.stop = start, stop
        self._checkpoint, self._name = checkpoint, name
        self._width = checkpoint.tensors[name].item_bytes
        memory = np.empty((stop - start) * self._width, np.uint8) if memory is None else memory
        self._memory = memory
        self.values: npt.NDArray[Any] = memory.view(np.dtype(f"<u{self._width}"))

    def leaves(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Read leaf after leaf: the first element's number in the tensor, and the values.

        Raises:
            CorruptError: the stored data is shorter than it should be.
            UnavailableError: the disk does not answer.
        """
        blockwise = isinstance(self._checkpoint, Blockwise) and self._checkpoint.blockwise
        if blockwise:
            self.values = self._checkpoint.read(self._name, self.start, self.stop, self._memory)
        for first in range(self.start, self.stop, LEAF_NUMEL):
            last = min(first + LEAF_NUMEL, self.stop)
            if not blockwise:
                self._read(first, last)
            yield first, self.values[first - self.start : last - self.start]

    def _read(self, first: int, last: int) -> None:
        begin, end = first - self.start, last - self.start
        piece = self._memory[begin * self._width : end * self._width]
        values = self._checkpoint.read(self._name, first, last, piece)
        if not np.may_share_memory(values, piece):
            self.values[begin:end] = values
