"""Scales: rows and columns that move more, or less, than the exponents of their weights let expect."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_SCALE
from maskreg.codec.steps import MIDDLE
from maskreg.jit import kernel

_SEEN = 384
"""Coordinates of a row or column whose exponents are looked at, at least where there are more; measured."""

_WINDOW = 64
"""Half exponents that are told apart; in 32 binades lies all that matters."""

_SHIFTS = np.arange(-MAX_SCALE, MAX_SCALE + 1)

_UNIT = 1 << 16
"""Rates are whole multiples of its inverse, so that sums of them are exact in any order."""

_TILE = 256
"""Columns whose counters fit a core's nearest cache."""

Counts = npt.NDArray[np.int64]
Rates = npt.NDArray[np.int32]
"""``[31, 64]``, by shift and level."""


@kernel
def _count_moved(
    tokens: npt.NDArray[np.uint8], column: int, by_row: npt.NDArray[np.int32], by_column: npt.NDArray[np.int32]
) -> None:
    """How many coordinates of each row and of each column moved."""
    width = by_column.size
    few = np.zeros(width, np.uint8)
    for row in range(by_row.size):
        first = row * width - column
        begin, end = max(0, -first), min(width, tokens.size - first)
        steps, here = tokens[first + begin : first + end], few[begin:end]
        total = np.int32(0)
        for j in range(here.size):
            total = np.int32(total + np.int32(steps[j] != MIDDLE))
        by_row[row] = total
        for j in range(here.size):
            here[j] = np.uint8(here[j] + np.uint8(steps[j] != MIDDLE))
        if row % 255 == 254 or row == by_row.size - 1:
            # Sums of bytes are the fastest there are.
            for j in range(width):
                by_column[j] += np.int32(few[j])
            few[:] = 0


@kernel
def _fit_rows(
    context: npt.NDArray[np.uint16],
    width: int,
    column: int,
    lowest: int,
    moved: npt.NDArray[np.int32],
    expectations: Rates,
    shifts: Ints,
) -> None:
    """The shift of each row."""
    # Four counters of each kind: one that was just written cannot be read at once.
    parts, seen = np.zeros((4, _WINDOW), np.int16), np.empty(_WINDOW, np.int16)
    stride = max(1, width // _SEEN)
    for row in range(shifts.size):
        parts[:] = 0
        begin, end = max(0, row * width - column), min((row + 1) * width - column, context.size)
        looked = (end - begin + stride - 1) // stride
        for at in range(looked):
            level = 2 * int((context[begin + at * stride] >> 7) & 0xFF) - lowest
            parts[at & 3, max(level, 0)] += np.int16(1)
        for level in range(_WINDOW):
            seen[level] = parts[0, level] + parts[1, level] + parts[2, level] + parts[3, level]
        shifts[row] = _best_shift(seen, moved[row] * looked / max(end - begin, 1), expectations)


@kernel
def _fit_columns(
    context: npt.NDArray[np.uint16],
    column: int,
    row_scales: Ints,
    lowest: int,
    moved: npt.NDArray[np.int32],
    expectations: Rates,
    shifts: Ints,
) -> None:
    """The shift of each column, knowing the rows' scales."""
    width, rows = shifts.size, row_scales.size
    stride = max(1, rows // _SEEN)
    looked = (rows + stride - 1) // stride
    seen, places = np.empty(_TILE * _WINDOW, np.int16), np.empty(_TILE, np.uint16)
    for tile in range(0, width, _TILE):
        seen[:] = 0
        for row in range(0, rows, stride):
            first = row * width - column + tile
            begin, end = max(0, -first), min(_TILE, width - tile, context.size - first)
            codes, here = context[first + begin : first + end], places[begin:end]
            offset = np.int16(lowest + row_scales[row])
            for j in range(here.size):
                level = np.int16(np.int16((codes[j] >> 6) & 0x1FE) - offset)
                level = min(max(level, np.int16(0)), np.int16(_WINDOW - 1))
                here[j] = np.uint16(np.uint16((begin + j) * _WINDOW) + np.uint16(level))
            for j in range(here.size):
                seen[here[j]] += np.int16(1)
        for j in range(min(_TILE, width - tile)):
            of_column = seen[j * _WINDOW : (j + 1) * _WINDOW]
            shifts[tile + j] = _best_shift(of_column, moved[tile + j] * looked / rows, expectations)


@kernel
def _expected(seen: npt.NDArray[np.int16], rates: npt.NDArray[np.int32]) -> int:
    """Coordinates expected to move, in 65,536ths; those seen are no more than 32 bits of it allow."""
    total = np.int32(0)
    for level in range(_WINDOW):
        total = np.int32(total + np.int32(np.int32(seen[level]) * rates[level]))
    return int(total)


@kernel
def _best_shift(seen: npt.NDArray[np.int16], moved: float, expectations: Rates) -> int:
    """The lowest shift under which the levels seen let expect as nearly as can be so many to move as did."""
    wanted = moved * _UNIT
    # The higher the shift, the more are expected.
    low, high = 0, expectations.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if _expected(seen, expectations[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    there = _expected(seen, expectations[low])
    while low:
        below = _expected(seen, expectations[low - 1])
        if abs(below - wanted) > abs(there - wanted):
            break
        low, there = low - 1, below
    return low - MAX_SCALE


def fit_scales(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    counts: Counts,
    *,
    rows: int,
    width: int,
    column: int,
) -> tuple[Ints, Ints]:
    """Row and column scales of a block, int8 ``[rows]`` and ``[width]``, in half exponents, each about a mean of 0.

    The scale of a line is the shift of its exponents under which as many coordinates as did were to be expected to
    move, at the rates at which coordinates of each exponent move in the whole block.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``.
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
        rows: of the block.
        width: of its rows.
        column: of its first coordinate.
    """
    by_exponent = counts.sum(axis=1)
    still = counts[:, MIDDLE]
    lowest = 2 * int(np.flatnonzero(by_exponent)[-1]) + 2 - _WINDOW
    expectations = _expectations(by_exponent, by_exponent - still, lowest)

    row_scales, column_scales = np.empty(rows, np.int8), np.empty(width, np.int8)
    by_row, by_column = np.zeros(rows, np.int32), np.zeros(width, np.int32)
    _count_moved(tokens, column, by_row, by_column)
    _fit_rows(context, width, column, lowest, by_row, expectations, row_scales)
    row_scales = _centered(row_scales)
    # Columns are judged knowing the rows. Rows judged again, knowing the columns, come out much the same.
    _fit_columns(context, column, row_scales, lowest, by_column, expectations, column_scales)
    return row_scales, _centered(column_scales)


def _centered(shifts: Ints) -> Ints:
    scales: Ints = np.clip(shifts - round(float(shifts.mean())), -MAX_SCALE, MAX_SCALE).astype(np.int8)
    return scales


def _expectations(seen: Counts, moved: Counts, lowest: int) -> Rates:
    """Rates of moving by shift and level: a line between those of the exponents that occur."""
    known = np.flatnonzero(seen)
    levels = lowest + np.arange(_WINDOW) - _SHIFTS[:, None]
    rates = _falling(seen[known].tolist(), moved[known].tolist())
    return np.rint(np.interp(levels / 2, known, rates) * _UNIT).astype(np.int32)


def _falling(seen: list[int], moved: list[int]) -> list[float]:
    """Rates that never rise: larger weights move less, and noise in thin classes must not say otherwise.

    Neighbors that say otherwise are pooled (M. Ayer and others, "An empirical distribution function for sampling with
    incomplete information", Ann. Math. Statist. 26, 1955).
    """
    pools: list[tuple[int, int, int]] = []
    for count, of_them in zip(seen, moved, strict=True):
        pool = (count, of_them, 1)
        while pools and pool[1] * pools[-1][0] > pools[-1][1] * pool[0]:
            before = pools.pop()
            pool = (pool[0] + before[0], pool[1] + before[1], pool[2] + before[2])
        pools.append(pool)
    return [of_them / count for count, of_them, length in pools for _ in range(length)]
