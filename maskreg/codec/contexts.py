"""Contexts: what the source, and a little side information, tell about how a coordinate moved.

Post-training adds an update that is nearly independent of a weight, and bf16 keeps what exceeds half a unit in the last
place; so a weight's exponent says most about how far its code goes. Two kinds of side information say more. *Scales*: a
row or a column that moves more than its exponents let expect shifts their classes. *Factors*: an update is close to a
matrix of low rank, whose sign at a coordinate predicts the direction of its step, and whose size how far it goes.

Everything here is integer arithmetic: the decoder must come to the very same cells.
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
"""Exponents are told apart in a window of this many; those outside count as its ends."""

SCALED_CLASSES = 32
"""With scales, half exponents are told apart."""

MAX_SCALE = 15
"""Of a scale's magnitude, in half exponents."""

MAX_RANK = 32
"""Components of a prediction."""

MAX_FACTOR = 31
"""Of a factor's magnitude; with 32 components the sum of products still fits 16 bits."""

SIZES = 8
"""Predictions are told apart by size, in as many classes."""

MAX_CELLS = SCALED_CLASSES * SIZES
"""With scales and factors; a cell's number is a byte."""

TILE = 1 << 12
"""Coordinates worked on at a time; what is computed for them stays in a core's nearest cache."""


def _no_scales() -> Ints:
    return np.empty(0, np.int8)


def _no_factors() -> Ints:
    return np.empty((0, 0), np.int8)


class Fields(NamedTuple):
    """What kernels know of a block's :class:`Contexts`, under the same names; ``width`` is that of its grid."""

    width: int
    base: int
    row_scales: Ints
    column_scales: Ints
    row_factors: Ints
    column_factors: Ints
    bounds: npt.NDArray[np.int16]


@dataclass(frozen=True)
class Contexts:
    """How the coordinates of a block fall into cells.

    Attributes:
        grid: where they lie; its width is at least 1.
        base: doubled exponent of the first class.
        row_scales, column_scales: int8 ``[rows]`` and ``[width]``, in half exponents; both empty when not used.
        row_factors, column_factors: int8 ``[rank, rows]`` and ``[rank, width]``; rank 0 when not used.
        bounds: int16 ``[7]``, in any order: a prediction's size class is how many of them its magnitude reaches.
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
        """Whether rows and columns have scales."""
        return self.row_scales.size > 0

    @property
    def rank(self) -> int:
        """Components of the prediction."""
        return len(self.row_factors)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return (SCALED_CLASSES if self.scaled else PLAIN_CLASSES) * (SIZES if self.rank else 1)

    def fields(self) -> Fields:
        """The same for kernels."""
        scales, factors = (self.row_scales, self.column_scales), (self.row_factors, self.column_factors)
        return Fields(self.grid.width, self.base, *scales, *factors, self.bounds)


def rows_of(grid: Grid, n: int) -> int:
    """Rows that a run of ``n`` coordinates touches."""
    return -(-(grid.column + n) // grid.width)


@kernel
def _predict(row: Ints, columns: Ints, guess: npt.NDArray[np.int16]) -> None:
    """Predictions along a row, from its factors, int8 ``[rank]``, and those of its columns, int8 ``[rank, n]``."""
    rank = row.size
    guess[:] = 0
    for first in range(0, rank - 3, 4):
        # Four at a time, so that sums go to memory and back a quarter as often.
        f0, f1 = np.int16(row[first]), np.int16(row[first + 1])
        f2, f3 = np.int16(row[first + 2]), np.int16(row[first + 3])
        c0, c1, c2, c3 = columns[first], columns[first + 1], columns[first + 2], columns[first + 3]
        for j in range(guess.size):
            more = np.int16(np.int16(f0 * np.int16(c0[j])) + np.int16(f1 * np.int16(c1[j])))
            yet_more = np.int16(np.int16(f2 * np.int16(c2[j])) + np.int16(f3 * np.int16(c3[j])))
            guess[j] = np.int16(guess[j] + np.int16(more + yet_more))
    for last in range(rank // 4 * 4, rank):
        factor, others = np.int16(row[last]), columns[last]
        for j in range(guess.size):
            guess[j] = np.int16(guess[j] + np.int16(factor * np.int16(others[j])))


@kernel
def classify(
    codes: npt.NDArray[np.uint16],
    at: int,
    contexts: Fields,
    cells: npt.NDArray[np.uint8],
    flips: Ints,
    predicted: npt.NDArray[np.int16],
) -> None:
    """Cells of coordinates that follow each other, and which of their steps are turned round.

    Args:
        codes: uint16 ``[n]``, the source's bits.
        at: place of the first, counted from the first column of the block's first row.
        contexts: of the block.
        cells: uint8 ``[n]``, filled.
        flips: int8 ``[n]``, filled: -1 where a step toward larger magnitude goes against the prediction, else 0.
        predicted: int16, at least ``n``; room to work in.
    """
    width, base, row_scales, column_scales, row_factors, column_factors, bounds = contexts
    rank = row_factors.shape[0]
    begin = 0
    while begin < codes.size:
        row, column = (at + begin) // width, (at + begin) % width
        length = min(codes.size - begin, width - column)
        here = codes[begin : begin + length]
        cell = cells[begin : begin + length]
        if row_scales.size:
            offset = np.int16(base + row_scales[row])
            shifts = column_scales[column : column + length]
            for j in range(length):
                level = np.int16(np.int16((here[j] >> 6) & 0x1FE) - offset - shifts[j])
                cell[j] = np.uint8(min(max(level, np.int16(0)), np.int16(SCALED_CLASSES - 1)))
        else:
            offset = np.int16(base >> 1)
            for j in range(length):
                level = np.int16(np.int16((here[j] >> 7) & 0xFF) - offset)
                cell[j] = np.uint8(min(max(level, np.int16(0)), np.int16(PLAIN_CLASSES - 1)))
        turned = flips[begin : begin + length]
        if rank:
            guess = predicted[:length]
            _predict(row_factors[:, row], column_factors[:, column : column + length], guess)
            b0, b1, b2, b3, b4, b5, b6 = (
                bounds[0], bounds[1], bounds[2], bounds[3], bounds[4], bounds[5], bounds[6],
            )  # fmt: skip
            for j in range(length):
                size = np.int16(abs(guess[j]))
                reached = (
                    np.uint8(size >= b0) + np.uint8(size >= b1) + np.uint8(size >= b2) + np.uint8(size >= b3)
                    + np.uint8(size >= b4) + np.uint8(size >= b5) + np.uint8(size >= b6)
                )  # fmt: skip
                cell[j] = np.uint8(np.uint8(cell[j] << 3) + np.uint8(reached))
                turned[j] = np.int8((guess[j] >> 15) ^ (np.int16(here[j]) >> 15))
        else:
            turned[:] = 0
        begin += length
