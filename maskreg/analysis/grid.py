"""Two masks counted by class in every row and every column of a matrix, on packed bits.

Rows and columns move together: what a weight's input and output do moves all weights of their column and row. So a null
of independent coordinates is too narrow, and row and column are what an overlap can come from. Everything that is said
about that follows from these counts; no coordinate is kept::

    codes  .5 .5 .7      A  1 0 1      B  1 0 0      cells  3 0 1      rows[.5]     (neither, A, B, both) = 1 0 0 1
           .7 .5 .5         0 1 1         0 1 0             0 3 1                                           0 1 0 1, ...

Tensors of more than two dimensions are matrices of their last one. Beyond ``MAX_LINES`` rows, or columns, neighbors are
counted as one, which bounds memory; a wider cluster is still a cluster. Where there
are very many classes, more of them are counted as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS
from maskreg.mask.rounding import CLASSES, classes_of
from maskreg.native import Library, library

# 2x2 tables by class in every row of a matrix, or in every column, in bounded memory.
#
# Counts take two bytes where no line has more than 65,535 coordinates. Classes that are frequent come as tables, those
# that are rare coordinate by coordinate. What is asked of lines are weighted sums, so that no copy of all counts is
# made. Where lines of many classes would take more than ``MAX_COUNTS`` counts, every two neighbors are counted as one::
#
#     MAX_COUNTS = 64     lines 0 1 2 3 4 5 6 7, two classes: 8 x 2 x 4 = 64 counts
#     a third class       lines 0+1 2+3 4+5 6+7               4 x 3 x 4 = 48

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint32]

MAX_COUNTS = 1 << 24
"""Most counts of all rows, or of all columns: four cells of 64 classes in 65,536 lines."""


class Points(NamedTuple):
    """Coordinates by the numbers, from 0 on, of their class, row and column: uint32 ``[n]`` each."""

    classes: Labels
    rows: Labels
    columns: Labels


class Lines:
    """2x2 tables by class in every row of a matrix, or in every column."""

    def __init__(self, count: int, length: int, run: int = 1) -> None:
        """Begin with nothing; each line has at most ``length`` coordinates, and stands for ``run`` rows or columns."""
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
        """Begin to count classes; those that are counted already can be among them."""
        new = [number for number in classes.tolist() if number not in self._by_class]
        while len(self) > 1 and CELLS * len(self) * (len(self._by_class) + len(new)) > MAX_COUNTS:
            self._halve()
        self._by_class |= zip(new, np.zeros((len(new), CELLS, len(self)), self._dtype), strict=True)

    def add(self, number: int, first: int, tables: npt.NDArray[np.uint32]) -> None:
        """Add tables of one class, uint32 ``[4, n]``, of ``first`` and the lines that follow; there is room for it."""
        begin = first >> self._shift
        if self._shift:
            lines = np.arange(first, first + tables.shape[1]) >> self._shift
            tables = np.add.reduceat(tables, np.flatnonzero(np.diff(lines, prepend=-1)), axis=1)
        counts = self._by_class[number][:, begin : begin + tables.shape[1]]
        np.add(counts, tables, out=counts, casting="unsafe")

    def add_listed(self, lines: npt.NDArray[np.uint32], keys: npt.NDArray[np.uint16]) -> None:
        """Add single coordinates, of classes for which there is room, by their lines and keys; see :class:`Listed`."""
        compiled = library()
        counts, _pointers = self._described(compiled, self._by_class, CLASSES)
        compiled.lib.maskreg_add_listed(counts, compiled.read(lines), compiled.read(keys), keys.size, self._shift)

    @cached_property
    def members(self) -> Floats:
        """Coordinates of each class that occurs, in order, in every line: float64 ``[k, lines]``."""
        return np.stack([self._by_class[number].sum(0, dtype=np.float64) for number in self.classes.tolist()])

    def sums(self, weights: Floats) -> Floats:
        """Weighted sums of every line, float64 ``[lines, m]``.

        Weights are float64 ``[k, 4, m]``: of the cells of each class, for each of m sums.
        """
        m = weights.shape[2]
        by_key = weights.reshape(-1, m)
        sums = np.empty((m, len(self)))
        by_class = [self._by_class[number] for number in sorted(self._by_class)]
        compiled = library()
        # BLAS would do it with threads of its own, which wait for each other in loops.
        counts, _pointers = self._described(compiled, dict(enumerate(by_class)), len(by_class))
        step, most = compiled.lib.MASKREG_SUMS, compiled.lib.MASKREG_MOST_SUMS
        for first in range(0, m, most):
            count = min(most, m - first)
            some = np.zeros((len(by_key), count + -count % step))
            some[:, :count] = by_key[:, first : first + most]
            out = np.empty((some.shape[1], len(self)))
            compiled.lib.maskreg_sum_lines(counts, compiled.read(some), some.shape[1], compiled.write(out))
            sums[first : first + most] = out[: m - first]
        return sums.T

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


Codes = npt.NDArray[np.uint16]
Packed = npt.NDArray[np.uint8]

MAX_LINES = 1 << 16
"""Most rows, or columns, that are counted apart."""

MOST_POINTS = 1 << 19
"""Most coordinates of a tensor that its rows' and columns' effects are fitted to."""

_SAMPLE = 1 << 13
_FREQUENT = 1 / 128
_MOST_FREQUENT = 16


@dataclass(frozen=True)
class Shape:
    """A tensor as a matrix whose rows and columns are counted, so many neighbors as one."""

    height: int
    width: int
    height_run: int = 1
    width_run: int = 1

    @property
    def rows(self) -> int:
        """Rows that are counted apart."""
        return -(-self.height // self.height_run)

    @property
    def columns(self) -> int:
        """Columns that are counted apart."""
        return -(-self.width // self.width_run)

    @property
    def step(self) -> int:
        """One in so many coordinates is a point. No factor divides the width too, so points are in all columns."""
        step = -(-self.height * self.width // MOST_POINTS)
        while math.gcd(step, self.width) > 1:
            step += 1
        return step


def shape_of(shape: Sequence[int]) -> Shape | None:
    """How the rows and columns of a tensor are counted; None for one that has not several of both."""
    if len(shape) < 2:
        return None
    height, width = math.prod(shape[:-1]), shape[-1]
    if height < 2 or width < 2:
        return None
    return Shape(height, width, -(-height // MAX_LINES), -(-width // MAX_LINES))


@dataclass(frozen=True, eq=False)
class Listed:
    """Coordinates of classes that few have: their rows of the span and columns of the matrix, as they are counted.

    Keys are four times the class, and the cell.
    """

    rows: npt.NDArray[np.uint32]
    columns: npt.NDArray[np.uint32]
    keys: npt.NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class SpanGrid:
    """The counts of one span of a tensor.

    Attributes:
        cells: int64 ``[512, 4]``, 2x2 tables by class.
        classes: int64 ``[k]``, those that are counted by line.
        first_row: number of the first row that was counted.
        rows: uint32 ``[rows of the span, k, 4]``.
        columns: uint32 ``[k, 4, all columns]``.
        listed: coordinates of all other classes.
        first_point: number of the first point of the span.
        points: classes of its points, uint16; empty where all are of class 0.
    """

    cells: Counts
    classes: Counts
    first_row: int
    rows: npt.NDArray[np.uint32]
    columns: npt.NDArray[np.uint32]
    listed: Listed
    first_point: int
    points: npt.NDArray[np.uint16]


class Grid:
    """The counts of a whole tensor, added up from its spans: 2x2 tables by class, also by row and by column."""

    def __init__(self, shape: Shape) -> None:
        """Begin with nothing."""
        self._shape = shape
        self._points = np.zeros(-(-shape.height * shape.width // shape.step), np.uint16)
        self.cells: Counts = np.zeros((CLASSES, CELLS), np.int64)
        self.rows = Lines(shape.rows, shape.width * shape.height_run, shape.height_run)
        self.columns = Lines(shape.columns, shape.height * shape.width_run, shape.width_run)

    @property
    def classes(self) -> Counts:
        """Classes that occur, in order, int64 ``[k]``."""
        return self.rows.classes

    def add(self, span: SpanGrid) -> None:
        """Add a span."""
        self.cells += span.cells
        present = np.flatnonzero(span.cells.sum(1))
        self.rows.make_room(present)
        self.columns.make_room(present)
        for k, number in enumerate(span.classes.tolist()):
            self.rows.add(number, span.first_row, span.rows[:, k].T)
            self.columns.add(number, 0, span.columns[k])
        self.rows.add_listed(span.listed.rows + np.uint32(span.first_row), span.listed.keys)
        self.columns.add_listed(span.listed.columns, span.listed.keys)
        self._points[span.first_point : span.first_point + span.points.size] = span.points

    @property
    def share(self) -> float:
        """Points for each coordinate."""
        return self._points.size / (self._shape.height * self._shape.width)

    @cached_property
    def points(self) -> Points:
        """Coordinates evenly spread over the tensor, all of a small one: by class, and by row and column as counted."""
        numbers = np.zeros(CLASSES, np.uint32)
        numbers[self.classes] = np.arange(self.classes.size)
        row, column = np.divmod(np.arange(self._points.size, dtype=np.int64) * self._shape.step, self._shape.width)
        lines = (row // self.rows.run, column // self.columns.run)
        return Points(numbers[self._points], *(line.astype(np.uint32) for line in lines))

    @cached_property
    def sizes(self) -> list[Floats]:
        """The number of points of every class, row and column."""
        counts = self.classes.size, len(self.rows), len(self.columns)
        own = zip(self.points, counts, strict=True)
        return [np.bincount(labels, minlength=count).astype(np.float64) for labels, count in own]


def _frequent(codes: Codes) -> Counts:
    """Classes of at least one coordinate in 128, by a sample: which they are only changes how long counting takes."""
    sample = codes[:: max(1, codes.size // _SAMPLE)]
    counts = np.bincount(classes_of(np.ascontiguousarray(sample)), minlength=CLASSES)
    most = np.argsort(-counts, kind="stable")[:_MOST_FREQUENT]
    return np.sort(most[counts[most] >= max(1, sample.size * _FREQUENT)])


def count_grid(a: Packed, b: Packed, codes: Codes | None, numel: int, start: int, shape: Shape) -> SpanGrid:
    """Count a span of a tensor, from coordinate ``start``, by the source's bf16 codes.

    Without codes, which are not known then, all coordinates are of class 0.
    """
    compiled = library()
    classes = np.zeros(1, np.int64) if codes is None else _frequent(codes)
    # Rows as they are counted: the first, and one past the last.
    along = shape.width * shape.height_run
    first, stop = start // along, (start + numel - 1) // along + 1
    rows = np.zeros((stop - first, classes.size, CELLS), np.uint32)
    columns = np.zeros((classes.size, CELLS, shape.columns), np.uint32)
    numbers = classes.astype(np.uint16)
    # Memory that is not written is never there.
    room = 0 if codes is None else numel
    by_row, by_column, keys = np.empty(room, np.uint32), np.empty(room + 64, np.uint32), np.empty(room, np.uint16)
    listed = compiled.ffi.new(
        "maskreg_listed *", [compiled.write(by_row), compiled.write(by_column), compiled.write(keys), 0]
    )
    span = compiled.ffi.new(
        "maskreg_grid *",
        [
            compiled.ffi.NULL if codes is None else compiled.read(codes), compiled.read(a), compiled.read(b), numel,
            start, shape.width, shape.height_run, shape.width_run, compiled.read(numbers), classes.size,
        ],
    )  # fmt: skip
    compiled.lib.maskreg_count_grid(span, compiled.write(rows), compiled.write(columns), listed)
    count = listed.count
    rest = Listed(by_row[:count].copy(), by_column[:count] // np.uint32(shape.width_run), keys[:count].copy())
    cells = np.bincount(rest.keys, minlength=CLASSES * CELLS).reshape(CLASSES, CELLS)
    cells[classes] += rows.sum(0, dtype=np.int64)
    point = -(-start // shape.step)
    points = (
        np.zeros(0, np.uint16) if codes is None else classes_of(codes[point * shape.step - start :: shape.step].copy())
    )
    return SpanGrid(cells, classes, first, rows, columns, rest, point, points)
