"""Scales: rows and columns that move more, or less, than the exponents of their weights predict.

The scale of a row is the shift s, in half exponents, under which its exponents predict as many moved coordinates as it
has. What they predict comes from the whole block: the rate at which coordinates of each exponent moved.

    rate(e)         share of the block's coordinates of exponent e that moved, made to fall with e
    predicted(s)    sum over the row's coordinates of rate(e - s / 2)
    scale           the s in -15 .. 15 whose prediction is closest to the row's number of moved coordinates

    rates .8 .6 .3 .1 at exponents 116 117 118 119; a row of 100 coordinates of exponent 118, 60 of them moved:
    predicted(0) = 30, predicted(1) = 45, predicted(2) = 60, so the scale is 2: the row moves as if it were of 117

Rows come first, then columns given the rows' scales. Predictions only grow with s, so s is found by bisection, and they
are sums of integers (rates in 32,767ths), so every machine finds the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Ints
from maskreg.codec.contexts import MAX_SCALE, Matrix
from maskreg.codec.ulp_steps import MIDDLE
from maskreg.native import library

_WINDOW = 64
"""Half exponents that are distinguished, up to the highest that occurs: all weights that matter lie in 32 binades."""

_UNIT = (1 << 15) - 1  # rates are multiples of its inverse, so that their sums are exact in any order, and fit 16 bits
_SPREAD = 32  # scales are tried if the mean of their squares is at least its inverse

Counts = npt.NDArray[np.int64]
Counts32 = npt.NDArray[np.int32]


def count_moved(matrix: Matrix) -> tuple[Counts32, Counts32]:
    """Moved coordinates of each row and of each column, int32 ``[rows]`` and ``[width]``."""
    source, tokens, rows, width, column = matrix
    by_row, by_column = np.empty(rows, np.int32), np.empty(width, np.int32)
    compiled = library()
    compiled.lib.maskreg_count_moved(
        compiled.read(tokens), source.size, rows, width, column, compiled.write(by_row), compiled.write(by_column)
    )
    return by_row, by_column


def fit_scales(matrix: Matrix, counts: Counts) -> tuple[Ints, Ints]:
    """Row and column scales of a block, int8 ``[rows]`` and ``[width]``, in half exponents, each of mean 0."""
    source, _, rows, width, column = matrix
    by_exponent = counts.sum(axis=1)
    # Twice the exponent of level 0; what lies below counts as level 0.
    lowest = 2 * int(np.flatnonzero(by_exponent)[-1]) + 2 - _WINDOW
    rates = _rates(by_exponent, by_exponent - counts[:, MIDDLE], lowest)
    by_row, by_column = count_moved(matrix)
    compiled, of_rows, of_columns = library(), np.empty(rows, np.int8), np.empty(width, np.int8)
    block = compiled.read(source), source.size, rows, width, column, lowest
    compiled.lib.maskreg_fit_rows(*block, compiled.read(rates), compiled.read(by_row), compiled.write(of_rows))
    # Fitting the rows again, given the columns, changes little.
    row_scales = _centered(of_rows)
    compiled.lib.maskreg_fit_columns(
        *block, compiled.read(row_scales), compiled.read(rates), compiled.read(by_column), compiled.write(of_columns)
    )
    return row_scales, _centered(of_columns)


def vary(row_scales: Ints, column_scales: Ints) -> bool:
    """Whether scales can save bits: of lines of two thousand coordinates, chance gives one in a thousand a scale."""
    squares = sum(int(np.square(scales, dtype=np.int16).sum(dtype=np.int64)) for scales in (row_scales, column_scales))
    return _SPREAD * squares >= row_scales.size + column_scales.size


def _centered(shifts: Ints) -> Ints:
    return np.clip(shifts - round(float(shifts.mean())), -MAX_SCALE, MAX_SCALE).astype(np.int8)


def _rates(present: Counts, moved: Counts, lowest: int) -> npt.NDArray[np.int16]:
    """Rates of moving, int16 ``[94]``, by level minus shift, from -15 on, in 32,767ths.

    They are interpolated linearly between the exponents that occur.
    """
    known = np.flatnonzero(present)
    levels = lowest + np.arange(-MAX_SCALE, _WINDOW + MAX_SCALE)
    rates = np.interp(levels / 2, known, _falling(present[known].tolist(), moved[known].tolist()))
    # They fall, also where interpolation is rounded.
    return np.minimum.accumulate(np.rint(rates * _UNIT).astype(np.int16))


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
