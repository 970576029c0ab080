"""Factors: a matrix of low rank that predicts which way, and how far, the coordinates of an update went.

An update is a sum of outer products of activations and gradients, so a few components often carry a large part of it.
They are found in a coarse copy of the update, and rounded to small integers with one step for all. The same input gives
the same factors on every machine.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_FACTOR, SIZES
from maskreg.codec.rans import TOKENS
from maskreg.codec.steps import FARTHEST, FEWER_BITS, LITERAL, MIDDLE, NEAREST
from maskreg.codec.subspace import (
    COMPONENTS,
    Floats,
    Found,
    Levels,
    as_directions,
    excess,
    find,
    forward,
    refined,
    rotate,
    turned,
)
from maskreg.jit import kernel

_LEVEL = 2.0
"""Levels of the coarse copy to the typical change."""

_MAX_LEVEL = 3

_SAMPLED = 1 << 17
"""Coordinates, in whole rows, that the directions are looked for in."""

_SPARE = 3
"""Components refined beyond those that pay, which gather what would blur these."""

_GAIN = 7.0
"""Bits that a component saves for each moved coordinate and each unit of its share of the energy; measured."""

_PRICE = 4.5
"""Bits of one factor, about."""

_FINENESS = 3.3
"""Step of the factors, to the square root of factors a coordinate; measured."""

_SIZED = 1 << 14
"""Predictions, in whole rows, that size classes are made for."""

Counts = npt.NDArray[np.int64]


def _eighths() -> npt.NDArray[np.int64]:
    """Sizes of the tokens' steps in eighths of their binade, eight for each binade below; -1 for none, int64 ``[64]``.

    Steps of up to 16 are numbers of four bits, and the middle of a far one is 1.5 times a power of two: these are all.
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
    """Level of a change of one size where another is typical."""
    apart = (eighths >> 3) - (typical >> 3)
    if apart > 2:
        return _MAX_LEVEL
    if apart < -3:
        return 0
    size = _LEVEL * (8 + (eighths & 7)) * (1 << (apart + 3)) / (8.0 * (8 + (typical & 7)))
    return min(int(np.rint(size)), _MAX_LEVEL)


@kernel
def levels_of_tokens(counts: Counts) -> Levels:
    """Coarse change of a number by sign, exponent and token, int16 ``[512, 64]``: -3 to 3, where 2 is typical.

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
def _fill_levels(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    table: Levels,
    column: int,
    first: int,
    stride: int,
    levels: Levels,
) -> None:
    """Rows ``first``, ``first + stride``, ... of the coarse copy, int16 ``[m, w]``; zeros beyond the block's ends."""
    by_pair = table.reshape(-1)
    for row in range(levels.shape[0]):
        line = levels[row]
        offset = (first + row * stride) * line.size - column
        begin, end = min(max(0, -offset), line.size), min(line.size, tokens.size - offset)
        line[:begin] = 0
        line[end:] = 0
        codes, steps = context[offset + begin : offset + end], tokens[offset + begin : offset + end]
        here = line[begin:end]
        for j in range(here.size):
            here[j] = by_pair[int(codes[j] >> 1) & 0x7FC0 | int(steps[j])]


def fit_factors(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    counts: Counts,
    *,
    rows: int,
    width: int,
    column: int,
) -> tuple[Ints, Ints] | None:
    """Row and column factors of a block, int8 ``[rank, rows]`` and ``[rank, width]``; None when they would not pay.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``.
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
        rows: of the block.
        width: of its rows.
        column: of its first coordinate.
    """
    moved = int(counts.sum() - counts[:, MIDDLE].sum())
    needed = _PRICE * (rows + width) / (_GAIN * max(moved, 1))
    # Found in some rows and judged by others: in the rows that it was found in, a direction of noise looks good.
    stride = max(2, rows * width // _SAMPLED)
    return _fit(context, tokens, levels_of_tokens(counts), rows, width, column, stride, needed)


@kernel
def _fit(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    table: Levels,
    rows: int,
    width: int,
    column: int,
    stride: int,
    needed: float,
) -> tuple[Ints, Ints] | None:
    """Factors of a block; of directions that have a share ``needed`` of the energy."""
    some = np.empty(((rows + stride - 1) // stride, width), np.int16)
    others = np.empty(((rows - stride // 2 + stride - 1) // stride, width), np.int16)
    _fill_levels(context, tokens, table, column, 0, stride, some)
    _fill_levels(context, tokens, table, column, stride // 2, stride, others)
    found = find(some)
    rank = 0
    for share in excess(found, others):
        rank += share > needed
    if not rank:
        return None
    kept = min(rank + _SPARE, COMPONENTS)
    vectors = as_directions(rotate(found.vectors, np.ascontiguousarray(found.turn[:, :kept])))
    sums = np.empty((kept, rows), np.int32)
    whole = np.empty((rows, width), np.int16)
    _fill_levels(context, tokens, table, column, 0, 1, whole)
    vectors = refined(vectors, whole)
    forward(whole, vectors, sums)
    return _factors(turned(vectors, sums), rank)


@kernel
def _factors(found: Found, rank: int) -> tuple[Ints, Ints]:
    """Directions, and how far each row goes along them, as factors."""
    turn = np.ascontiguousarray(found.turn[:, :rank])
    left, right = rotate(found.sums, turn), rotate(found.vectors, turn)
    rows, width = left.shape[1], right.shape[1]
    step = _FINENESS * math.sqrt((rows + width) / (rows * width))
    for component in range(left.shape[0]):
        # Both sides of a component get the same typical size, so that one step suits all.
        strength = max(math.sqrt(found.powers[component]), 1e-300)
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
    """Bounds that divide the predictions' sizes into eight classes, equally filled, int16 ``[7]``."""
    rows, width = row_factors.shape[1], column_factors.shape[1]
    counts = np.zeros(row_factors.shape[0] * MAX_FACTOR * MAX_FACTOR + 1, np.int32)
    predicted, seen = np.empty(width, np.int16), 0
    for row in range(0, rows, max(1, rows * width // _SIZED)):
        predicted[:] = 0
        for component in range(row_factors.shape[0]):
            factor, others = np.int16(row_factors[component, row]), column_factors[component]
            for column in range(width):
                predicted[column] = np.int16(predicted[column] + np.int16(factor * np.int16(others[column])))
        for column in range(width):
            counts[abs(predicted[column])] += 1
        seen += width
    bounds, reached, size = np.empty(SIZES - 1, np.int16), counts[0], 0
    for bound in range(SIZES - 1):
        while reached * SIZES <= seen * (bound + 1):
            size += 1
            reached += counts[size]
        bounds[bound] = size
    return bounds
