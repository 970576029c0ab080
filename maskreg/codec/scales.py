"""Scales: rows and columns that move more, or less, than the exponents of their weights let expect."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_SCALE
from maskreg.codec.steps import MIDDLE
from maskreg.jit import kernel

_WANTED = 150
"""Moved coordinates of a row or column that its scale is fitted to, about; more tell little."""

_NEEDED = 40
"""The fewest that it is fitted to where there are more: fewer say too little."""

_SAMPLED = 1 << 20
"""Coordinates looked at in one pass, about, when that leaves enough that moved."""

_WINDOW = 64
"""Half exponents that are told apart; in 32 binades lies all that matters."""

_SHIFTS = np.arange(-MAX_SCALE, MAX_SCALE + 1)

_UNIT = 1 << 16
"""Rates are whole multiples of its inverse, so that sums of them are exact in any order."""

Counts = npt.NDArray[np.int64]


@kernel
def _count_rows(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    width: int,
    column: int,
    stride: int,
    lowest: int,
    seen: npt.NDArray[np.int32],
    moved: Counts,
) -> None:
    """Coordinates by row and level, and how many of each row moved; of every ``stride``-th."""
    parts = np.zeros((4, seen.shape[1]), np.int32)
    for row in range(seen.shape[0]):
        parts[:] = 0
        begin, end = max(0, row * width - column), min((row + 1) * width - column, tokens.size)
        for at in range((end - begin + stride - 1) // stride):
            i = begin + at * stride
            level = 2 * int((context[i] >> 7) & 0xFF) - lowest
            # Four counters of each kind: one that was just written cannot be read at once.
            parts[at & 3, max(level, 0)] += 1
            moved[row] += tokens[i] != MIDDLE
        seen[row] = parts[0] + parts[1] + parts[2] + parts[3]


@kernel
def _count_columns(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    column: int,
    row_scales: Ints,
    stride: int,
    lowest: int,
    seen: npt.NDArray[np.int32],
    moved: Counts,
) -> None:
    """Coordinates by column and level less the row's scale, and how many of each column moved; in some rows."""
    width = seen.shape[0]
    for row in range(0, row_scales.size, stride):
        first = row * width - column
        offset = lowest + row_scales[row]
        for j in range(max(0, -first), min(width, tokens.size - first)):
            level = 2 * int((context[first + j] >> 7) & 0xFF) - offset
            seen[j, min(max(level, 0), seen.shape[1] - 1)] += 1
            moved[j] += tokens[first + j] != MIDDLE


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
    density = 1 - still.sum() / by_exponent.sum()
    lowest = 2 * int(np.flatnonzero(by_exponent)[-1]) + 2 - _WINDOW
    expectations = _expectations(by_exponent, by_exponent - still, lowest)

    def stride(length: int) -> int:
        of_line = length * density
        return max(1, int(of_line / _WANTED), int(min(tokens.size / _SAMPLED, of_line / _NEEDED)))

    seen, moved = np.zeros((rows, _WINDOW), np.int32), np.zeros(rows, np.int64)
    _count_rows(context, tokens, width, column, stride(width), lowest, seen, moved)
    row_scales = _fitted(seen, moved, expectations)
    # Columns are judged knowing the rows. Rows judged again, knowing the columns, come out much the same.
    seen, moved = np.zeros((width, _WINDOW), np.int32), np.zeros(width, np.int64)
    _count_columns(context, tokens, column, row_scales, stride(rows), lowest, seen, moved)
    return row_scales, _fitted(seen, moved, expectations)


def _fitted(seen: npt.NDArray[np.int32], moved: Counts, expectations: npt.NDArray[np.float64]) -> Ints:
    expected = np.zeros((len(seen), expectations.shape[1]))
    _sum_up(seen, expectations, expected)
    shifts = _SHIFTS[np.abs(expected - moved[:, None] * float(_UNIT)).argmin(axis=1)]
    scales: Ints = np.clip(shifts - round(float(shifts.mean())), -MAX_SCALE, MAX_SCALE).astype(np.int8)
    return scales


@kernel
def _sum_up(
    seen: npt.NDArray[np.int32], expectations: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]
) -> None:
    """``expected += seen @ expectations``, without the threads of a linear algebra library."""
    for line in range(seen.shape[0]):
        total = expected[line]
        for level in range(seen.shape[1]):
            count = np.float64(seen[line, level])
            if count:
                for shift in range(total.size):
                    total[shift] += count * expectations[level, shift]


def _expectations(seen: Counts, moved: Counts, lowest: int) -> npt.NDArray[np.float64]:
    """Rates of moving by level and shift, ``[64, 31]``: a line between those of the exponents that occur."""
    known = np.flatnonzero(seen)
    levels = lowest + np.arange(_WINDOW)[:, None] - _SHIFTS
    rates = _falling(seen[known].tolist(), moved[known].tolist())
    return np.rint(np.interp(levels / 2, known, rates) * _UNIT)


def _falling(seen: list[int], moved: list[int]) -> list[float]:
    """Rates that never rise: larger weights move less, and noise in thin classes must not say otherwise.

    Neighbours that say otherwise are pooled (M. Ayer and others, "An empirical distribution function for sampling with
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
