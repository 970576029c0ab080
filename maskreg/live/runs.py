"""Coordinates of a tensor that one process holds, in C order: a number of *runs* of one length.

::

    [4, 6] over 2 processes, Shard(1), process 1        starts 3, 9, 15, 21 and length 3
    [4, 6] over 2 processes, Shard(0), process 1        start 12, length 12

However a tensor is cut, the coordinates of a process in a block of the tensor are a slice of what it holds, since
both are ascending. So a block is put together from slices, and taken apart into slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]
Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Runs:
    """Ascending coordinates of a tensor in C order: runs of one length.

    Attributes:
        starts: int64 ``[k]``, the first coordinate of each, ascending.
    """

    starts: Indexes
    length: int

    @classmethod
    def of(cls, shape: Sequence[int], indexes: Sequence[Indexes]) -> Runs:
        """The product of ascending indexes along each dimension.

        From the last dimension outward, whole dimensions lengthen the run, and so does the first that is not whole if
        its indexes follow each other; all others multiply the starts.
        """
        if not math.prod(map(len, indexes)):
            return cls(np.empty(0, np.int64), 0)
        dim, length = len(shape), 1
        while dim and len(indexes[dim - 1]) == shape[dim - 1]:
            dim -= 1
            length *= shape[dim]
        starts, stride = np.zeros(1, np.int64), length
        if dim:
            dim -= 1
            own = indexes[dim]
            if own[-1] - own[0] + 1 == len(own):
                starts, length = own[:1] * stride, length * len(own)
            else:
                starts = own * stride
            stride *= shape[dim]
        while dim:
            dim -= 1
            starts = (indexes[dim][:, None] * stride + starts).reshape(-1)
            stride *= shape[dim]
        return cls(starts, length)

    @classmethod
    def whole(cls, numel: int) -> Runs:
        """All coordinates of a tensor."""
        return cls(np.zeros(int(numel > 0), np.int64), numel)

    @property
    def numel(self) -> int:
        """How many coordinates."""
        return self.starts.size * self.length

    def between(self, start: int, stop: int) -> slice:
        """Which of them, in order, are coordinates ``[start, stop)`` of the tensor."""
        return slice(self._before(start), self._before(stop))

    def positions(self, taken: slice, start: int) -> slice | Indexes:
        """Where some of them lie in a block: their coordinates, counted from the block's first."""
        first, last = taken.start // self.length, (taken.stop - 1) // self.length
        if first == last:
            begin = int(self.starts[first]) - start + taken.start - first * self.length
            return slice(begin, begin + taken.stop - taken.start)
        return self.coordinates(np.arange(taken.start, taken.stop)) - start

    def coordinates(self, numbers: Indexes) -> Indexes:
        """The coordinates with these numbers among them, int64 ``[k]`` both."""
        if self.starts.size == 1:
            return self.starts + numbers
        first: Indexes = self.starts[numbers // self.length]
        return first + numbers % self.length

    def of_block(self, values: Bits, taken: slice, start: int) -> Bits:
        """Some of them, in order, of the values of a block; see :meth:`positions`."""
        first, last = taken.start // self.length, (taken.stop - 1) // self.length
        strides = np.diff(self.starts[first : last + 1])
        if strides.size < 2 or (strides != strides[0]).any():
            return values[self.positions(taken, start)]
        # Whole runs between the first and the last are rows of a matrix, which need no indexes.
        begin, width = int(self.starts[first + 1]) - start, values.itemsize
        shape, steps = (strides.size - 1, self.length), (int(strides[0]) * width, width)
        rows = np.lib.stride_tricks.as_strided(values[begin:], shape, steps, writeable=False)
        ends = slice(taken.start, (first + 1) * self.length), slice(last * self.length, taken.stop)
        head, tail = (values[self.positions(end, start)] for end in ends)
        return np.concatenate([head, rows.reshape(-1), tail])

    def _before(self, coordinate: int) -> int:
        """How many of them come before a coordinate."""
        if not self.length:
            return 0
        number = int(np.searchsorted(self.starts, coordinate))
        rest = coordinate - int(self.starts[number - 1]) if number else 0
        return max(number - 1, 0) * self.length + min(rest, self.length)


def pieces(of: Mapping[int, Runs], start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """The processes that hold coordinates ``[start, stop)`` of a tensor, and which of theirs; ``of``: by process."""
    for rank, runs in of.items():
        taken = runs.between(start, stop)
        if taken.stop > taken.start:
            yield rank, taken
