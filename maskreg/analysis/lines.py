"""2x2 tables by class in every row of a matrix, or in every column, in bounded memory.

Counts take two bytes where no line has more than 65,535 coordinates. Classes that are frequent come as tables, those
that are rare coordinate by coordinate. What is asked of lines are weighted sums, so that no copy of all counts is made.
Where lines of many classes would take more than ``MAX_COUNTS`` counts, every two neighbors are counted as one::

    MAX_COUNTS = 64     lines 0 1 2 3 4 5 6 7, two classes: 8 x 2 x 4 = 64 counts
    a third class       lines 0+1 2+3 4+5 6+7               4 x 3 x 4 = 48
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS
from maskreg.mask.rounding import CLASSES
from maskreg.native import Library, library

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_COUNTS = 1 << 24
"""Most counts of all rows, or of all columns: four cells of 64 classes in 65,536 lines."""

_AT_ONCE = 1 << 10
"""Lines of which counts become floats together."""


class Lines:
    """2x2 tables by class in every row of a matrix, or in every column."""

    def __init__(self, count: int, length: int, run: int = 1) -> None:
        """Begin with nothing.

        Args:
            count: of the lines.
            length: coordinates of the longest.
            run: rows, or columns, that each stands for.
        """
        self._all, self._length, self._run = count, length, run
        self._shift = 0
        self._by_class: dict[int, npt.NDArray[np.unsignedinteger]] = {}

    def __len__(self) -> int:
        """How many lines are counted apart."""
        return -(-self._all >> self._shift)

    @property
    def run(self) -> int:
        """Neighboring rows, or columns, that are counted as one line."""
        return self._run << self._shift

    @property
    def classes(self) -> Counts:
        """Classes that occur, in order, int64 ``[k]``."""
        return np.array(sorted(self._by_class), np.int64)

    def make_room(self, classes: Counts) -> None:
        """Begin to count classes; those that are counted already may be among them."""
        new = [number for number in classes.tolist() if number not in self._by_class]
        while len(self) > 1 and CELLS * len(self) * (len(self._by_class) + len(new)) > MAX_COUNTS:
            self._halve()
        self._by_class |= {number: np.zeros((CELLS, len(self)), self._dtype) for number in new}

    def add(self, number: int, first: int, tables: npt.NDArray[np.uint32]) -> None:
        """Add tables of one class.

        Args:
            number: of the class, for which there is room.
            first: the first line.
            tables: uint32 ``[4, n]``, of the lines that follow.
        """
        begin = first >> self._shift
        if self._shift:
            lines = np.arange(first, first + tables.shape[1]) >> self._shift
            tables = np.add.reduceat(tables, np.flatnonzero(np.diff(lines, prepend=-1)), axis=1)
        counts = self._by_class[number][:, begin : begin + tables.shape[1]]
        np.add(counts, tables, out=counts, casting="unsafe")

    def add_listed(self, lines: npt.NDArray[np.uint32], keys: npt.NDArray[np.uint16]) -> None:
        """Add single coordinates, of classes for which there is room.

        Args:
            lines: uint32 ``[m]``.
            keys: uint16 ``[m]``, four times the class, and the cell.
        """
        if compiled := library():
            counts, _pointers = self._described(compiled, self._by_class, CLASSES)
            compiled.lib.maskreg_add_listed(counts, compiled.read(lines), compiled.read(keys), keys.size, self._shift)
            return
        for number in np.unique(keys // CELLS).tolist():
            inside = keys // CELLS == number
            np.add.at(self._by_class[number], (keys[inside] % CELLS, lines[inside] >> self._shift), 1)

    def sums(self, weights: Floats) -> Floats:
        """Weighted sums of every line.

        Args:
            weights: float64 ``[k, 4, m]``: of the cells of each class, for each of m sums.

        Returns:
            float64 ``[lines, m]``.
        """
        m = weights.shape[2]
        by_key = weights.reshape(-1, m)
        sums = np.empty((m, len(self)))
        by_class = [self._by_class[number] for number in sorted(self._by_class)]
        if compiled := library():
            # BLAS would do it with threads of its own, which wait for each other in loops.
            counts, _pointers = self._described(compiled, dict(enumerate(by_class)), len(by_class))
            step, most = compiled.lib.MASKREG_SUMS, compiled.lib.MASKREG_MOST_SUMS
            for first in range(0, m, most):
                some = by_key[:, first : first + most]
                some = np.pad(some, ((0, 0), (0, -some.shape[1] % step)))
                out = np.empty((some.shape[1], len(self)))
                compiled.lib.maskreg_sum_lines(counts, compiled.read(some), some.shape[1], compiled.write(out))
                sums[first : first + most] = out[: m - first]
            return sums.T
        # A few lines of all classes at a time, for which alone counts become floats.
        for first in range(0, len(self), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            tables = np.concatenate([counts[:, part] for counts in by_class]).astype(np.float64)
            sums[:, part] = by_key.T @ tables
        return sums.T

    def numel_by(self, kinds: Counts) -> Floats:
        """Coordinates of every line by kind of class.

        Args:
            kinds: int64 ``[k]``, from 0: of each class.

        Returns:
            float64 ``[kinds, lines]``.
        """
        numel = np.zeros((int(kinds.max(initial=0)) + 1, len(self)))
        for kind, number in zip(kinds.tolist(), sorted(self._by_class), strict=True):
            numel[kind] += self._by_class[number].sum(0, dtype=np.int64)
        return numel

    def _described(self, compiled: Library, counts: Mapping[int, npt.NDArray[Any]], kinds: int) -> tuple[Any, Any]:
        """What kernels are told of the counts of some classes, and the memory that it points to."""
        pointers = compiled.ffi.new("void *[]", kinds)
        for number, own in counts.items():
            pointers[number] = compiled.write(own)
        return compiled.ffi.new("maskreg_lines *", [pointers, kinds, len(self), self._dtype().itemsize]), pointers

    @property
    def _dtype(self) -> type[np.uint16] | type[np.uint32] | type[np.uint64]:
        most = self._length << self._shift
        return np.uint16 if most < 1 << 16 else np.uint32 if most < 1 << 32 else np.uint64

    def _halve(self) -> None:
        """Count every two neighbors as one."""
        self._shift += 1
        for number, counts in self._by_class.items():
            halves = np.zeros((CELLS, len(self)), self._dtype)
            halves += counts[:, ::2]
            halves[:, : counts.shape[1] // 2] += counts[:, 1::2]
            self._by_class[number] = halves
