"""Scales: rows and columns that move more, or less, than the exponents of their weights predict.

The scale of a row is the shift s, in half exponents, under which its exponents predict as many moved coordinates as it
has. What they predict comes from the whole block: the rate at which coordinates of each exponent moved.

    rate(e)         share of the block's coordinates of exponent e that moved, made to fall with e
    predicted(s)    sum over the row's coordinates of rate(e - s / 2)
    scale           the s in -15 .. 15 whose prediction is closest to the row's number of moved coordinates

    rates .8 .6 .3 .1 at exponents 116 117 118 119; a row of 100 coordinates of exponent 118, 60 of them moved:
    predicted(0) = 30, predicted(1) = 45, predicted(2) = 60, so the scale is 2: the row moves as if it were of 117

Rows come first, then columns given the rows' scales. Predictions only grow with s, so s is found by bisection, and they
are sums of integers (rates in 65,536ths), so every machine finds the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_SCALE, Matrix
from maskreg.codec.ulp_steps import MIDDLE
from maskreg.jit import kernel

_SEEN = 384
"""Coordinates of a row or column that are sampled for their exponents, about; measured."""

_WINDOW = 64
"""Half exponents that are distinguished, up to the highest that occurs: all weights that matter lie in 32 binades."""

_SHIFTS = np.arange(-MAX_SCALE, MAX_SCALE + 1)

_UNIT = 1 << 16
"""Rates are multiples of its inverse, so that their sums are exact in any order."""

_TILE = 256
"""Columns whose counters fit the first-level cache."""

Counts = npt.NDArray[np.int64]


class Expected(NamedTuple):
    """Rates of moving.

    Attributes:
        lowest: twice the exponent of level 0; what lies below counts as level 0.
        rates: int32 ``[31, 64]``, by shift and level, in 65,536ths.
    """

    lowest: int
    rates: npt.NDArray[np.int32]


@kernel
def _count_moved(matrix: Matrix, by_row: npt.NDArray[np.int32], by_column: npt.NDArray[np.int32]) -> None:
    """Count the moved coordinates of each row and each column."""
    width = matrix.width
    partial = np.zeros(width, np.uint8)
    for row in range(matrix.rows):
        first = row * width - matrix.column
        begin, end = max(0, -first), min(width, matrix.tokens.size - first)
        tokens, counters = matrix.tokens[first + begin : first + end], partial[begin:end]
        total = np.int32(0)
        for j in range(counters.size):
            total = np.int32(total + np.int32(tokens[j] != MIDDLE))
        by_row[row] = total
        for j in range(counters.size):
            counters[j] = np.uint8(counters[j] + np.uint8(tokens[j] != MIDDLE))
        if row % 255 == 254 or row == matrix.rows - 1:
            # Counters of a byte, 32 to a vector, hold 255 rows; then they are emptied into wider ones.
            for j in range(width):
                by_column[j] += np.int32(partial[j])
            partial[:] = 0


@kernel
def _fit_rows(matrix: Matrix, expected: Expected, moved: npt.NDArray[np.int32], shifts: Ints) -> None:
    """Fill the shift of each row.

    Args:
        matrix: the block.
        expected: rates of moving.
        moved: int32 ``[rows]``, how many coordinates moved.
        shifts: int8 ``[rows]``, filled.
    """
    # Four histograms in turn: neighbors often share a level, and an increment waits for the store of the one before.
    parts, levels = np.zeros((4, _WINDOW), np.int16), np.empty(_WINDOW, np.int16)
    source, width, column = matrix.source, matrix.width, matrix.column
    stride = max(1, width // _SEEN)
    for row in range(shifts.size):
        parts[:] = 0
        begin, end = max(0, row * width - column), min((row + 1) * width - column, source.size)
        sampled = (end - begin + stride - 1) // stride
        for k in range(sampled):
            level = 2 * int((source[begin + k * stride] >> 7) & 0xFF) - expected.lowest
            parts[k & 3, max(level, 0)] += np.int16(1)
        for level in range(_WINDOW):
            levels[level] = parts[0, level] + parts[1, level] + parts[2, level] + parts[3, level]
        shifts[row] = _best_shift(levels, moved[row] * sampled / max(end - begin, 1), expected.rates)


@kernel
def _fit_columns(
    matrix: Matrix, row_scales: Ints, expected: Expected, moved: npt.NDArray[np.int32], shifts: Ints
) -> None:
    """Fill the shift of each column, given the rows' scales.

    Args:
        matrix: the block.
        row_scales: int8 ``[rows]``.
        expected: rates of moving.
        moved: int32 ``[width]``, how many coordinates moved.
        shifts: int8 ``[width]``, filled.
    """
    width, rows = matrix.width, matrix.rows
    stride = max(1, rows // _SEEN)
    sampled = (rows + stride - 1) // stride
    histograms, keys = np.empty(_TILE * _WINDOW, np.int16), np.empty(_TILE, np.uint16)
    for tile in range(0, width, _TILE):
        histograms[:] = 0
        for row in range(0, rows, stride):
            first = row * width - matrix.column + tile
            begin, end = max(0, -first), min(_TILE, width - tile, matrix.source.size - first)
            codes, row_keys = matrix.source[first + begin : first + end], keys[begin:end]
            offset = np.int16(expected.lowest + row_scales[row])
            for j in range(row_keys.size):
                level = np.int16(np.int16((codes[j] >> 6) & 0x1FE) - offset)
                level = min(max(level, np.int16(0)), np.int16(_WINDOW - 1))
                row_keys[j] = np.uint16(np.uint16((begin + j) * _WINDOW) + np.uint16(level))
            for j in range(row_keys.size):
                histograms[row_keys[j]] += np.int16(1)
        for j in range(min(_TILE, width - tile)):
            levels = histograms[j * _WINDOW : (j + 1) * _WINDOW]
            shifts[tile + j] = _best_shift(levels, moved[tile + j] * sampled / rows, expected.rates)


@kernel
def _predicted(levels: npt.NDArray[np.int16], rates: npt.NDArray[np.int32]) -> int:
    """Coordinates predicted to move, in 65,536ths. No more than 767 are sampled, so it fits 32 bits."""
    total = np.int32(0)
    for level in range(_WINDOW):
        total = np.int32(total + np.int32(np.int32(levels[level]) * rates[level]))
    return int(total)


@kernel
def _best_shift(levels: npt.NDArray[np.int16], moved: float, rates: npt.NDArray[np.int32]) -> int:
    """The lowest shift whose prediction is closest to ``moved``; ``levels`` counts the line's coordinates by level."""
    goal = moved * _UNIT
    # Predictions grow with the shift: find the first that reaches the goal, then look whether one below is closer.
    low, high = 0, rates.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if _predicted(levels, rates[middle]) < goal:
            low = middle + 1
        else:
            high = middle
    closest = _predicted(levels, rates[low])
    while low:
        below = _predicted(levels, rates[low - 1])
        if abs(below - goal) > abs(closest - goal):
            break
        low, closest = low - 1, below
    return low - MAX_SCALE


def fit_scales(matrix: Matrix, counts: Counts) -> tuple[Ints, Ints]:
    """Row and column scales of a block, int8 ``[rows]`` and ``[width]``, in half exponents, each of mean 0.

    Args:
        matrix: the block.
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
    """
    by_exponent = counts.sum(axis=1)
    lowest = 2 * int(np.flatnonzero(by_exponent)[-1]) + 2 - _WINDOW
    expected = Expected(lowest, _rates(by_exponent, by_exponent - counts[:, MIDDLE], lowest))
    row_scales, column_scales = np.empty(matrix.rows, np.int8), np.empty(matrix.width, np.int8)
    by_row, by_column = np.zeros(matrix.rows, np.int32), np.zeros(matrix.width, np.int32)
    _count_moved(matrix, by_row, by_column)
    _fit_rows(matrix, expected, by_row, row_scales)
    row_scales = _centered(row_scales)
    # Fitting the rows again, given the columns, changes little.
    _fit_columns(matrix, row_scales, expected, by_column, column_scales)
    return row_scales, _centered(column_scales)


def _centered(shifts: Ints) -> Ints:
    scales: Ints = np.clip(shifts - round(float(shifts.mean())), -MAX_SCALE, MAX_SCALE).astype(np.int8)
    return scales


def _rates(present: Counts, moved: Counts, lowest: int) -> npt.NDArray[np.int32]:
    """Rates of moving by shift and level, interpolated linearly between the exponents that occur."""
    known = np.flatnonzero(present)
    levels = lowest + np.arange(_WINDOW) - _SHIFTS[:, None]
    rates = _falling(present[known].tolist(), moved[known].tolist())
    return np.rint(np.interp(levels / 2, known, rates) * _UNIT).astype(np.int32)


def _falling(present: list[int], moved: list[int]) -> list[float]:
    """Rates by exponent that never rise: larger weights move less, and noise in rare exponents must not contradict it.

    Pool adjacent violators (M. Ayer and others, "An empirical distribution function for sampling with incomplete
    information", Ann. Math. Statist. 26, 1955): 8 of 10, 1 of 5, 30 of 95 become .8, .31, .31.
    """
    pools: list[tuple[int, int, int]] = []
    for count, moved_count in zip(present, moved, strict=True):
        pool = (count, moved_count, 1)
        while pools and pool[1] * pools[-1][0] > pools[-1][1] * pool[0]:
            before = pools.pop()
            pool = (pool[0] + before[0], pool[1] + before[1], pool[2] + before[2])
        pools.append(pool)
    return [moved_count / count for count, moved_count, length in pools for _ in range(length)]
