"""Contexts: what the source's code, and a little side information, predict about how a coordinate moved.

Every coordinate falls into a *cell*, and each cell has a frequency table. The better a cell predicts its tokens, the
fewer bits they take.

*Exponent.* Post-training adds an update that is nearly independent of the weight, and bf16 keeps only what exceeds half
a unit in the last place. So the weight's exponent e predicts best how many ULPs it moves: one binade up, half as many.
Without side information the cell is e itself, within a window of 16 exponents that begins at ``base / 2``.

*Scales.* A row or column that moves more than its exponents predict gets a scale in half exponents, and counts as if
its exponents were that much lower:

    class = 2 * e - base - row_scale - column_scale,  clamped to 0 .. 31

    base 230, e = 120: class 10. In a row of scale 3 (moves 2^1.5 times as far as usual) and a column of scale -1: 8

*Factors.* An update is close to a matrix of low rank. The prediction p = sum of row_factor * column_factor over the
components says which way a coordinate moved, by its sign, and how far, by its size:

    cell = 8 * class + how many of seven bounds |p| reaches;    flip the ULP step when p and the weight differ in sign

    p = -40, bounds 5 10 20 30 50 70 90: size 4. A weight of 0.02 then likely shrinks: its magnitude moves by -|step|.
    The flip turns that into +|step|. A weight of -0.02 likely grows in magnitude: +|step| already, no flip.

Everything here is integer arithmetic: a decoder must come to the very same cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.grid import Grid
from maskreg.jit import kernel

PLAIN_CLASSES = 16
"""Exponents in the window; those outside it count as its first or last."""

SCALED_CLASSES = 32
"""Half exponents in the window when there are scales."""

MAX_SCALE = 15
"""Largest magnitude of a scale, in half exponents."""

MAX_RANK = 32
"""Most components that a prediction may have."""

MAX_FACTOR = 31
"""Largest magnitude of a factor. 32 components of 31 * 31 sum to 30,752: predictions fit 16 bits."""

SIZES = 8
"""Size classes of predictions."""

MAX_CELLS = SCALED_CLASSES * SIZES
"""Cells with scales and factors; a cell's number is a byte."""

TILE = 1 << 12
"""Coordinates processed at a time, so that intermediate results stay in the first-level cache."""


def _no_scales() -> Ints:
    return np.empty(0, np.int8)


def _no_factors() -> Ints:
    return np.empty((0, 0), np.int8)


class Fields(NamedTuple):
    """A block's :class:`Contexts` as kernels take them, under the same names; ``width`` is the grid's."""

    width: int
    base: int
    row_scales: Ints
    column_scales: Ints
    row_factors: Ints
    column_factors: Ints
    bounds: npt.NDArray[np.int16]


@dataclass(frozen=True)
class Contexts:
    """What decides the cells of a block's coordinates.

    Attributes:
        grid: where the coordinates lie; its width is at least 1.
        base: twice the exponent of the first class.
        row_scales, column_scales: int8 ``[rows]`` and ``[width]``, in half exponents; both empty without scales.
        row_factors, column_factors: int8 ``[rank, rows]`` and ``[rank, width]``; rank 0 without factors.
        bounds: int16 ``[7]``, in any order: a prediction's size class is how many of them it reaches in magnitude.
    """

    grid: Grid
    base: int
    row_scales: Ints = field(default_factory=_no_scales)
    column_scales: Ints = field(default_factory=_no_scales)
    row_factors: Ints = field(default_factory=_no_factors)
    column_factors: Ints = field(default_factory=_no_factors)
    bounds: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(SIZES - 1, np.int16))

    @property
    def scaled(self) -> bool:
        """Whether there are scales."""
        return self.row_scales.size > 0

    @property
    def rank(self) -> int:
        """Components of the prediction; 0 without factors."""
        return len(self.row_factors)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return (SCALED_CLASSES if self.scaled else PLAIN_CLASSES) * (SIZES if self.rank else 1)

    def fields(self) -> Fields:
        """What kernels take."""
        scales, factors = (self.row_scales, self.column_scales), (self.row_factors, self.column_factors)
        return Fields(self.grid.width, self.base, *scales, *factors, self.bounds)


class Matrix(NamedTuple):
    """A block as rows of a matrix, for fitting scales and factors; the first and last row may be incomplete.

    Attributes:
        source: uint16 ``[n]``.
        tokens: uint8 ``[n]``, not flipped.
        rows: rows that the block touches.
        width: coordinates in a row.
        column: column of the first coordinate.
    """

    source: npt.NDArray[np.uint16]
    tokens: npt.NDArray[np.uint8]
    rows: int
    width: int
    column: int


def rows_of(grid: Grid, n: int) -> int:
    """Rows that a span of ``n`` coordinates touches."""
    return -(-(grid.column + n) // grid.width)


@kernel
def _predict(row: Ints, columns: Ints, predicted: npt.NDArray[np.int16]) -> None:
    """Predictions along a row: ``predicted[j] = sum over k of row[k] * columns[k, j]``.

    In 16 bits throughout, which is exact (see :data:`MAX_FACTOR`) and gives twice as many lanes as 32.

    Args:
        row: int8 ``[rank]``, the row's factors.
        columns: int8 ``[rank, n]``, those of its columns.
        predicted: int16 ``[n]``, filled.
    """
    rank = row.size
    predicted[:] = 0
    for first in range(0, rank - 3, 4):
        # Four components at a time: the sums are loaded and stored a quarter as often.
        f0, f1 = np.int16(row[first]), np.int16(row[first + 1])
        f2, f3 = np.int16(row[first + 2]), np.int16(row[first + 3])
        c0, c1, c2, c3 = columns[first], columns[first + 1], columns[first + 2], columns[first + 3]
        for j in range(predicted.size):
            left = np.int16(np.int16(f0 * np.int16(c0[j])) + np.int16(f1 * np.int16(c1[j])))
            right = np.int16(np.int16(f2 * np.int16(c2[j])) + np.int16(f3 * np.int16(c3[j])))
            predicted[j] = np.int16(predicted[j] + np.int16(left + right))
    for last in range(rank // 4 * 4, rank):
        factor, column = np.int16(row[last]), columns[last]
        for j in range(predicted.size):
            predicted[j] = np.int16(predicted[j] + np.int16(factor * np.int16(column[j])))


class Cells(NamedTuple):
    """Cells of a span, with room to compute them.

    Attributes:
        cells: uint8 ``[n]``, filled.
        flips: int8 ``[n]``, filled: -1 where the ULP step is flipped, else 0.
        predicted: int16, at least ``n``; scratch.
    """

    cells: npt.NDArray[np.uint8]
    flips: Ints
    predicted: npt.NDArray[np.int16]


@kernel
def classify(codes: npt.NDArray[np.uint16], position: int, contexts: Fields, out: Cells) -> None:
    """Cells of a span, and which of its ULP steps are flipped.

        for each row that the span touches, for its columns j:
            cell[j] = class of the exponent, shifted by the scales
            p = prediction;  cell[j] = 8 * cell[j] + how many bounds |p| reaches;  flip[j] = sign(p) != sign(weight)

    One loop per purpose, each over one row, because then each compiles to vectors.

    Args:
        codes: uint16 ``[n]``, the source's bits.
        position: of the first coordinate, counted from the first column of the block's first row.
        contexts: of the block.
        out: filled.
    """
    width, base, row_scales, column_scales, row_factors, column_factors, bounds = contexts
    rank = row_factors.shape[0]
    begin = 0
    while begin < codes.size:
        row, column = (position + begin) // width, (position + begin) % width
        length = min(codes.size - begin, width - column)
        code, cell = codes[begin : begin + length], out.cells[begin : begin + length]
        if row_scales.size:
            offset = np.int16(base + row_scales[row])
            shifts = column_scales[column : column + length]
            for j in range(length):
                # 2 * e, in one shift and mask.
                level = np.int16(np.int16((code[j] >> 6) & 0x1FE) - offset - shifts[j])
                cell[j] = np.uint8(min(max(level, np.int16(0)), np.int16(SCALED_CLASSES - 1)))
        else:
            offset = np.int16(base >> 1)
            for j in range(length):
                level = np.int16(np.int16((code[j] >> 7) & 0xFF) - offset)
                cell[j] = np.uint8(min(max(level, np.int16(0)), np.int16(PLAIN_CLASSES - 1)))
        flip = out.flips[begin : begin + length]
        if rank:
            predicted = out.predicted[:length]
            _predict(row_factors[:, row], column_factors[:, column : column + length], predicted)
            _refine(code, predicted, bounds, cell, flip)
        else:
            flip[:] = 0
        begin += length


@kernel
def _refine(
    code: npt.NDArray[np.uint16],
    predicted: npt.NDArray[np.int16],
    bounds: npt.NDArray[np.int16],
    cell: npt.NDArray[np.uint8],
    flip: Ints,
) -> None:
    """Append the size class of each prediction to its cell, and say which ULP steps are flipped."""
    # In registers, and unrolled: a loop over bounds inside would not compile to vectors.
    b0, b1, b2, b3, b4, b5, b6 = bounds[0], bounds[1], bounds[2], bounds[3], bounds[4], bounds[5], bounds[6]
    for j in range(cell.size):
        size = np.int16(abs(predicted[j]))
        reached = (
            np.uint8(size >= b0) + np.uint8(size >= b1) + np.uint8(size >= b2) + np.uint8(size >= b3)
            + np.uint8(size >= b4) + np.uint8(size >= b5) + np.uint8(size >= b6)
        )  # fmt: skip
        cell[j] = np.uint8(np.uint8(cell[j] << 3) + np.uint8(reached))
        # -1 where the sign bits differ: arithmetic shifts make 0 or -1 of each.
        flip[j] = np.int8((predicted[j] >> 15) ^ (np.int16(code[j]) >> 15))
