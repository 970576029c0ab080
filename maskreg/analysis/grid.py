"""Two masks counted by class in every row and every column of a matrix, on packed bits.

Rows and columns move together: what a weight's input and output do moves all weights of their column and row. So a null
of independent coordinates is too narrow, and row and column are what an overlap may come from. Everything that is said
about that follows from these counts; no coordinate is kept::

    codes  .5 .5 .7      A  1 0 1      B  1 0 0      cells  3 0 1      rows[.5]     (neither, A, B, both) = 1 0 0 1
           .7 .5 .5         0 1 1         0 1 0             0 3 1                                           0 1 0 1, ...

Tensors of more than two dimensions are matrices of their last one. Beyond ``MAX_LINES`` rows, or columns, neighbors are
counted as one, which bounds memory; a wider cluster is still a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import unpack
from maskreg.mask.rounding import classes_of
from maskreg.native import library

Counts = npt.NDArray[np.int64]
Packed = npt.NDArray[np.uint8]

CELLS = 4
"""Cells of a 2x2 table: in neither mask, in A only, in B only, in both."""

MAX_LINES = 1 << 16
"""Most rows, or columns, that are counted apart."""


@dataclass(frozen=True)
class Shape:
    """A tensor as a matrix whose rows and columns are counted.

    Attributes:
        height, width: of the matrix.
        height_run, width_run: neighboring rows, and columns, that are counted as one.
    """

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


def shape_of(shape: Sequence[int]) -> Shape | None:
    """How the rows and columns of a tensor are counted; None for one that has not several of both."""
    if len(shape) < 2:
        return None
    height, width = math.prod(shape[:-1]), shape[-1]
    if height < 2 or width < 2:
        return None
    return Shape(height, width, -(-height // MAX_LINES), -(-width // MAX_LINES))


@dataclass(frozen=True, eq=False)
class SpanGrid:
    """The counts of one span of a tensor.

    Attributes:
        classes: int64 ``[k]``, classes in order; all that occur, and perhaps more.
        first_row: number of the first row that was counted.
        rows: int64 ``[rows of the span, k, 4]``.
        columns: uint32 ``[k, 4, all columns]``.
    """

    classes: Counts
    first_row: int
    rows: Counts
    columns: npt.NDArray[np.uint32]


class Grid:
    """The counts of a whole tensor, added up from its spans.

    Attributes:
        classes: int64 ``[k]``, classes in order; all that occur, and perhaps more.
        rows: int64 ``[rows, k, 4]``, 2x2 tables by row and class.
        columns: int64 ``[k, 4, columns]``, the same by column.
    """

    def __init__(self, shape: Shape) -> None:
        """Begin with nothing."""
        self.classes: Counts = np.zeros(0, np.int64)
        self.rows: Counts = np.zeros((shape.rows, 0, CELLS), np.int64)
        self.columns: Counts = np.zeros((0, CELLS, shape.columns), np.int64)

    def add(self, span: SpanGrid) -> None:
        """Add a span."""
        if not np.isin(span.classes, self.classes).all():
            self._make_room(np.union1d(self.classes, span.classes))
        slots = np.searchsorted(self.classes, span.classes)
        self.rows[span.first_row : span.first_row + len(span.rows), slots] += span.rows
        self.columns[slots] += span.columns

    def _make_room(self, classes: Counts) -> None:
        slots = np.searchsorted(classes, self.classes)
        rows = np.zeros((len(self.rows), classes.size, CELLS), np.int64)
        columns = np.zeros((classes.size, CELLS, self.columns.shape[2]), np.int64)
        rows[:, slots], columns[slots] = self.rows, self.columns
        self.classes, self.rows, self.columns = classes, rows, columns


def count_grid(a: Packed, b: Packed, codes: npt.NDArray[np.uint16], start: int, shape: Shape) -> SpanGrid:
    """Count a span of a tensor.

    Args:
        a: A's bits, from :func:`maskreg.mask.pack`.
        b: B's bits.
        codes: the source's bf16 codes, uint16 ``[n]``; all equal where classes are not to be told apart.
        start: first coordinate of the span within the tensor.
        shape: of the tensor.
    """
    first, last = start // shape.width // shape.height_run, (start + codes.size - 1) // shape.width // shape.height_run
    low, classes = _classes_from(codes)
    count, kinds = last - first + 1, classes.size
    if compiled := library():
        rows = np.zeros((count, kinds, CELLS), np.int64)
        columns = np.zeros((kinds, CELLS, shape.columns), np.uint32)
        compiled.lib.maskreg_count_grid(
            compiled.read(codes), codes.size, compiled.read(a), compiled.read(b), low, kinds,
            start, shape.width, shape.height_run, shape.width_run, shape.columns,
            compiled.write(rows), compiled.write(columns), compiled.write(np.zeros(columns.size, np.uint8)),
        )  # fmt: skip
        return SpanGrid(classes, first, rows, columns)
    row, column = np.divmod(start + np.arange(codes.size), shape.width)
    row, column = row // shape.height_run - first, column // shape.width_run
    slots = np.searchsorted(classes, classes_of(codes))
    keys = CELLS * slots + unpack(a, codes.size) + np.uint8(2) * unpack(b, codes.size)
    by_row = np.bincount(row * (CELLS * kinds) + keys, minlength=count * CELLS * kinds)
    by_column = np.bincount(keys * shape.columns + column, minlength=CELLS * kinds * shape.columns)
    return SpanGrid(
        classes,
        first,
        by_row.astype(np.int64).reshape(count, kinds, CELLS),
        by_column.astype(np.uint32).reshape(kinds, CELLS, -1),
    )


def _classes_from(codes: npt.NDArray[np.uint16]) -> tuple[int, Counts]:
    """The smallest exponent field but 0, and classes that include all that occur: without gaps but above 0."""
    if compiled := library():
        ends = np.empty(2, np.int64)
        compiled.lib.maskreg_find_exponents(compiled.read(codes), codes.size, compiled.write(ends))
        low, high = ends.tolist()
    else:
        exponents = codes >> 7 & 0xFF
        low, high = int(exponents.min(initial=0xFFFF, where=exponents > 0)), int(exponents.max())
    if not high:
        return 1, np.arange(2)
    return low, np.concatenate([np.arange(2), np.arange(2 * low, 2 * high + 2)])
