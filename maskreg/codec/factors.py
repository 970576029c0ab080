"""Factors: a matrix of low rank that predicts which way, and how far, the coordinates of an update moved.

An update is a sum of outer products of activations and gradients, so few components often carry much of it.

1. *Coarse copy.* How much each number changed, from its exponent and its ULP step, as a level of -3 to 3, where 2 is
   the typical change. Outliers are clipped, literals and coordinates that did not move are 0.

       typical change 2^-13: a weight of exponent -7 that moved 1 ULP (2^-14) has level 1, one that moved 2 ULPs level 2

2. *Rank.* Directions are searched in one sample of rows, and judged in another: each has a share of the energy there
   (:func:`maskreg.codec.subspace.excess`). A component is worth it when the bits that its share saves exceed those of
   its factors: ``7 * moved * share > 4.5 * (rows + width)``. Their number is the rank; 0 means no factors.

       2048 x 2048, half moved: 7 * 2.1e6 * share > 4.5 * 4,096, so a share of 0.13 % pays

3. *Fit.* One more round of the iteration over all rows, with three components to spare, gives the directions of the
   columns; products with them give the rows' factors.
4. *Quantize.* Both sides of a component are scaled to the same typical size, then divided by one step for all and
   rounded to -31 .. 31. So strong components have large factors, and weak ones, whose product matters less, fewer
   levels and shorter codes.

The same input gives the same factors on every machine, see :mod:`maskreg.codec.subspace`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_FACTOR, SIZES, Matrix
from maskreg.codec.rans import TOKENS
from maskreg.codec.subspace import (
    COMPONENTS,
    Floats,
    Levels,
    Subspace,
    as_directions,
    excess,
    find_subspace,
    forward,
    refined,
    rotate,
    sorted_subspace,
)
from maskreg.codec.ulp_steps import FARTHEST, FEWER_BITS, LITERAL, MIDDLE, NEAREST
from maskreg.jit import kernel

_LEVEL = 2.0
"""Level of the typical change."""

_MAX_LEVEL = 3

_SAMPLED = 1 << 17
"""Coordinates, in whole rows, of the sample in which directions are searched."""

_SPARE = 3
"""Components fitted beyond the rank: they absorb what would otherwise mix into those that are kept."""

_GAIN = 7.0
"""Bits that a component saves per moved coordinate and unit of its share of the energy; measured."""

_PRICE = 4.5
"""Bits of a factor, about."""

_FINENESS = 3.3
"""Quantization step of the factors, relative to the square root of factors per coordinate; measured."""

_SIZED = 1 << 14
"""Predictions, in whole rows, from which size classes are made."""

Counts = npt.NDArray[np.int64]


def _eighths() -> npt.NDArray[np.int64]:
    """Logarithmic sizes of the tokens' ULP steps, int64 ``[64]``; -1 for tokens that are none.

    A size ``m * 2^b`` with 1 <= m < 2 is the integer ``8 * (b - 1) + 8 * m``: 8 per binade, linear within it. That is
    exact, because steps up to 16 have at most four significant bits, and the middle of a longer one's class is
    1.5 * 2^b. Adding 8 times the weight's exponent gives the size of the change itself.

        1 step: 0   2 steps: 8   3 steps: 12   4 steps: 16   5 steps: 18   17 to 32 steps (24): 36
    """
    sizes = np.abs(np.arange(TOKENS) - MIDDLE)
    binades = np.maximum(
        np.where(sizes > NEAREST, sizes - FEWER_BITS, [max(int(v), 1).bit_length() - 1 for v in sizes]), 0
    )
    eighths = np.where(sizes > NEAREST, 12, (8 * sizes) >> binades) + 8 * (binades - 1)
    return np.where((sizes == 0) | (sizes > FARTHEST) | (np.arange(TOKENS) == LITERAL), -1, eighths)


_EIGHTHS = _eighths()
_ALL_EIGHTHS = 8 * 256 + int(_EIGHTHS.max()) + 1


@kernel
def _level_of(eighths: int, typical: int) -> int:
    """Level of a change where another size is typical; both as of :func:`_eighths`."""
    apart = (eighths >> 3) - (typical >> 3)
    if apart > 2:
        return _MAX_LEVEL
    if apart < -3:
        return 0
    size = _LEVEL * (8 + (eighths & 7)) * (1 << (apart + 3)) / (8.0 * (8 + (typical & 7)))
    return min(int(np.rint(size)), _MAX_LEVEL)


@kernel
def levels_of_tokens(counts: Counts) -> Levels:
    """Levels by sign, exponent and token, int16 ``[512, 64]``: -3 to 3, where 2 is the median change.

    Args:
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
    """
    table, of_size = np.zeros((512, TOKENS), np.int16), np.zeros(_ALL_EIGHTHS, np.int64)
    moved = 0
    for exponent in range(255):
        for token in range(TOKENS):
            if counts[exponent, token] and _EIGHTHS[token] >= 0:
                of_size[8 * max(exponent, 1) + _EIGHTHS[token]] += counts[exponent, token]
                moved += counts[exponent, token]
    if not moved:
        return table
    # the median size
    typical, reached = 0, of_size[0]
    while 2 * reached < moved:
        typical += 1
        reached += of_size[typical]
    for exponent in range(255):
        for token in range(TOKENS):
            if counts[exponent, token] and _EIGHTHS[token] >= 0:
                level = _level_of(8 * max(exponent, 1) + _EIGHTHS[token], typical)
                table[exponent, token] = np.int16(level if token > MIDDLE else -level)
                table[256 + exponent, token] = -table[exponent, token]
    return table


@kernel
def _fill_levels(matrix: Matrix, table: Levels, first: int, stride: int, levels: Levels) -> None:
    """Rows ``first``, ``first + stride``, ... of the coarse copy.

    Args:
        matrix: the block.
        table: of :func:`levels_of_tokens`.
        first: row.
        stride: rows.
        levels: int16 ``[m, w]``, filled; 0 beyond the block's ends.
    """
    by_key = table.reshape(-1)
    for row in range(levels.shape[0]):
        line = levels[row]
        offset = (first + row * stride) * line.size - matrix.column
        begin, end = min(max(0, -offset), line.size), min(line.size, matrix.tokens.size - offset)
        line[:begin] = 0
        line[end:] = 0
        codes, tokens = matrix.source[offset + begin : offset + end], matrix.tokens[offset + begin : offset + end]
        inner = line[begin:end]
        for j in range(inner.size):
            # Sign and exponent are the code's upper 9 bits.
            inner[j] = by_key[int(codes[j] >> 1) & 0x7FC0 | int(tokens[j])]


def fit_factors(matrix: Matrix, counts: Counts) -> tuple[Ints, Ints] | None:
    """Row and column factors of a block, int8 ``[rank, rows]`` and ``[rank, width]``; None when they would not pay.

    Args:
        matrix: the block.
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
    """
    rows, width = matrix.rows, matrix.width
    moved = int(counts.sum() - counts[:, MIDDLE].sum())
    needed = _PRICE * (rows + width) / (_GAIN * max(moved, 1))
    stride = max(2, rows * width // _SAMPLED)
    return _fit(matrix, levels_of_tokens(counts), stride, needed)


@kernel
def _fit(matrix: Matrix, table: Levels, stride: int, needed: float) -> tuple[Ints, Ints] | None:
    """Factors of the components whose share of the energy is above ``needed``; None when there are none.

    Args:
        matrix: the block.
        table: of :func:`levels_of_tokens`.
        stride: rows from one sampled row to the next.
        needed: share.
    """
    rows, width = matrix.rows, matrix.width
    # Rows 0, stride, ... to search in; those halfway between them to judge by.
    sample = np.empty(((rows + stride - 1) // stride, width), np.int16)
    others = np.empty(((rows - stride // 2 + stride - 1) // stride, width), np.int16)
    _fill_levels(matrix, table, 0, stride, sample)
    _fill_levels(matrix, table, stride // 2, stride, others)
    subspace = find_subspace(sample)
    rank = 0
    for share in excess(subspace, others):
        rank += share > needed
    if not rank:
        return None
    kept = min(rank + _SPARE, COMPONENTS)
    vectors = as_directions(rotate(subspace.vectors, np.ascontiguousarray(subspace.rotation[:, :kept])))
    sums = np.empty((kept, rows), np.int32)
    whole = np.empty((rows, width), np.int16)
    _fill_levels(matrix, table, 0, 1, whole)
    vectors = refined(vectors, whole)
    forward(whole, vectors, sums)
    return _quantized(sorted_subspace(vectors, sums), rank)


@kernel
def _quantized(subspace: Subspace, rank: int) -> tuple[Ints, Ints]:
    """Row and column factors of the first ``rank`` directions.

    A component is ``left x right`` with right of norm 1 and left of norm sqrt(power) = strength. Scaled to
    ``size * sqrt(rows)`` and ``size * sqrt(width)``, both have the root mean square ``size``, and their product is
    still the component.
    """
    rotation = np.ascontiguousarray(subspace.rotation[:, :rank])
    left, right = rotate(subspace.sums, rotation), rotate(subspace.vectors, rotation)
    rows, width = left.shape[1], right.shape[1]
    step = _FINENESS * math.sqrt((rows + width) / (rows * width))
    for component in range(left.shape[0]):
        strength = max(math.sqrt(subspace.powers[component]), 1e-300)
        size = math.sqrt(strength / math.sqrt(rows * width))
        left[component] *= size * math.sqrt(rows) / strength / step
        right[component] *= size * math.sqrt(width) / step
    return _rounded(left), _rounded(right)


@kernel
def _rounded(factors: Floats) -> Ints:
    rounded = np.empty(factors.shape, np.int8)
    for component in range(factors.shape[0]):
        for i in range(factors.shape[1]):
            value = min(max(factors[component, i], -float(MAX_FACTOR)), float(MAX_FACTOR))
            rounded[component, i] = np.int8(np.rint(value))
    return rounded


@kernel
def size_bounds(row_factors: Ints, column_factors: Ints) -> npt.NDArray[np.int16]:
    """Bounds between eight size classes that are about equally common, int16 ``[7]``: octiles of a histogram."""
    rows, width = row_factors.shape[1], column_factors.shape[1]
    counts = np.zeros(row_factors.shape[0] * MAX_FACTOR * MAX_FACTOR + 1, np.int32)
    predicted, seen = np.empty(width, np.int16), 0
    for row in range(0, rows, max(1, rows * width // _SIZED)):
        predicted[:] = 0
        for component in range(row_factors.shape[0]):
            factor, factors = np.int16(row_factors[component, row]), column_factors[component]
            for column in range(width):
                predicted[column] = np.int16(predicted[column] + np.int16(factor * np.int16(factors[column])))
        for column in range(width):
            counts[abs(predicted[column])] += 1
        seen += width
    bounds, reached, size = np.empty(SIZES - 1, np.int16), counts[0], 0
    for bound in range(SIZES - 1):
        # the next octile
        while reached * SIZES <= seen * (bound + 1):
            size += 1
            reached += counts[size]
        bounds[bound] = size
    return bounds
