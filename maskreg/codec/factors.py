"""Factors: a matrix of low rank that predicts which way, and how far, the coordinates of an update went.

An update is a sum of outer products of activations and gradients, so a few components often carry a large part of it.
They are found by subspace iteration (N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM
Review 53, 2011, section 4.4) on a coarse copy of the update, and rounded to small integers with one step for all.

The same input gives the same factors on every machine: large sums are of integers, and the small matrices in float64
are worked on in a fixed order, without a linear algebra library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_FACTOR, SIZES
from maskreg.codec.rans import TOKENS
from maskreg.codec.steps import FARTHEST, FEWER_BITS, LITERAL, MIDDLE, NEAREST
from maskreg.jit import kernel

COMPONENTS = 16
"""Looked for at most."""

_LEVEL = 2.0
"""Levels of the coarse copy to the typical change."""

_MAX_LEVEL = 3
_MAX_DIRECTION = 127
_ROUNDS = 2

_SAMPLED = 1 << 18
"""Coordinates, in whole rows, that the directions are looked for in."""

_GAIN = 7.0
"""Bits that a component saves for each moved coordinate and each unit of its share of the energy; measured."""

_PRICE = 4.5
"""Bits of one factor, about."""

_FINENESS = 3.3
"""Step of the factors, to the square root of factors a coordinate; measured."""

_SIZED = 1 << 15
"""Predictions, in whole rows, that size classes are made for."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.int32]
"""``[16, n]``."""


def levels_of_tokens(counts: Counts) -> Ints:
    """Coarse change of a positive number by exponent and token, int8 ``[256, 64]``: -3 to 3, where 2 is typical.

    Args:
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
    """
    steps = np.arange(TOKENS) - MIDDLE
    far = np.abs(steps) > NEAREST
    # Powers of two without a library's pow and exp2, whose last bits differ between machines.
    steps = np.where(far, np.sign(steps) * np.ldexp(1.5, np.abs(steps) - FEWER_BITS), steps)
    steps[LITERAL], steps[np.abs(np.arange(TOKENS) - MIDDLE) > FARTHEST] = 0, 0
    size = np.ldexp(1.0, np.maximum(np.arange(256), 1) - 134)[:, None] * steps
    moved = counts * (steps != 0)
    present = np.flatnonzero(moved)
    if not present.size:
        return np.zeros((256, TOKENS), np.int8)
    lengths = np.abs(size).reshape(-1)[present]
    order = np.argsort(lengths, kind="stable")
    reached = np.cumsum(moved.reshape(-1)[present[order]])
    typical = lengths[order][np.searchsorted(reached, reached[-1] / 2)]
    levels = np.rint(size * (_LEVEL / typical))
    levels[255] = 0
    coarse: npt.NDArray[np.int8] = np.clip(levels, -_MAX_LEVEL, _MAX_LEVEL).astype(np.int8)
    return coarse


@kernel
def _levels(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    table: npt.NDArray[np.int8],
    column: int,
    first: int,
    stride: int,
    levels: Ints,
) -> None:
    """Rows ``first``, ``first + stride``, ... of the coarse copy, int8 ``[m, w]``; zeros beyond the block's ends."""
    for row in range(levels.shape[0]):
        line = levels[row]
        offset = (first + row * stride) * line.size - column
        line[:] = 0
        for j in range(max(0, -offset), min(line.size, tokens.size - offset)):
            i = offset + j
            level = table[(context[i] >> 7) & 0xFF, tokens[i]]
            line[j] = -level if context[i] >> 15 else level


@kernel
def _forward(levels: Ints, directions: npt.NDArray[np.int16], sums: Vectors) -> None:
    """``sums = directions @ levels.T``: int8 ``[m, w]``, int16 ``[k, w]``, int32 ``[k, m]``."""
    for row in range(levels.shape[0]):
        line = levels[row]
        for component in range(COMPONENTS):
            direction = directions[component]
            total = np.int32(0)
            for column in range(line.size):
                total = np.int32(total + np.int32(np.int32(line[column]) * np.int32(direction[column])))
            sums[component, row] = total


@kernel
def _backward(levels: Ints, directions: npt.NDArray[np.int16], sums: Vectors) -> None:
    """``sums = directions @ levels``: int8 ``[m, w]``, int16 ``[k, m]``, int32 ``[k, w]``."""
    sums[:] = 0
    for row in range(levels.shape[0]):
        line = levels[row]
        for component in range(COMPONENTS):
            factor = np.int32(directions[component, row])
            total = sums[component]
            for column in range(line.size):
                total[column] = np.int32(total[column] + np.int32(np.int32(line[column]) * factor))


@kernel
def _gram(vectors: Vectors) -> Floats:
    gram = np.empty((COMPONENTS, COMPONENTS))
    for one in range(COMPONENTS):
        for other in range(one + 1):
            left, right = vectors[one], vectors[other]
            total = np.int64(0)
            for i in range(left.size):
                total += np.int64(left[i]) * np.int64(right[i])
            gram[one, other] = gram[other, one] = np.float64(total)
    return gram


@kernel
def _inverse_root(gram: Floats) -> Floats:
    """``root`` so that ``root.T @ vectors`` is orthonormal (Cholesky, inverted); 0 where one depends on others."""
    lower = np.zeros_like(gram)
    for row in range(COMPONENTS):
        for column in range(row + 1):
            value = gram[row, column]
            for k in range(column):
                value -= lower[row, k] * lower[column, k]
            if row == column:
                lower[row, row] = math.sqrt(value) if value > 1e-9 * gram[row, row] else 0.0
            else:
                lower[row, column] = value / lower[column, column] if lower[column, column] > 0 else 0.0
    root = np.zeros_like(gram)
    for column in range(COMPONENTS):
        if lower[column, column] == 0.0:
            continue
        root[column, column] = 1.0 / lower[column, column]
        for row in range(column - 1, -1, -1):
            value = 0.0
            for k in range(row + 1, column + 1):
                value -= lower[k, row] * root[k, column]
            root[row, column] = value / lower[row, row] if lower[row, row] > 0 else 0.0
    return root


@kernel
def _eigen(matrix: Floats) -> Floats:
    """Eigenvectors of a symmetric matrix, in columns; it becomes diagonal (cyclic Jacobi rotations)."""
    n = matrix.shape[0]
    vectors = np.eye(n)
    for _ in range(12):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if matrix[p, q] == 0.0:
                    continue
                theta = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                for k in range(n):
                    a, b = matrix[k, p], matrix[k, q]
                    matrix[k, p], matrix[k, q] = c * a - s * b, s * a + c * b
                for k in range(n):
                    a, b = matrix[p, k], matrix[q, k]
                    matrix[p, k], matrix[q, k] = c * a - s * b, s * a + c * b
                for k in range(n):
                    a, b = vectors[k, p], vectors[k, q]
                    vectors[k, p], vectors[k, q] = c * a - s * b, s * a + c * b
    return vectors


@kernel
def _product(one: Floats, other: Floats) -> Floats:
    result = np.zeros((one.shape[0], other.shape[1]))
    for i in range(one.shape[0]):
        for k in range(one.shape[1]):
            for j in range(other.shape[1]):
                result[i, j] += one[i, k] * other[k, j]
    return result


@kernel
def _rotate(vectors: Vectors, turn: Floats) -> Floats:
    """``turn.T @ vectors``, float64 ``[r, n]``, in a fixed order."""
    rotated = np.zeros((turn.shape[1], vectors.shape[1]))
    for component in range(turn.shape[1]):
        line = rotated[component]
        for k in range(COMPONENTS):
            factor, vector = turn[k, component], vectors[k]
            for i in range(line.size):
                line[i] += vector[i] * factor
    return rotated


def _orthogonal(vectors: Vectors) -> npt.NDArray[np.int16]:
    """Orthogonal directions of the same span, as integers up to 127."""
    unit = _rotate(vectors, _inverse_root(_gram(vectors)))
    largest = max(float(np.abs(unit).max()), 1e-300)
    directions: npt.NDArray[np.int16] = np.rint(unit * (_MAX_DIRECTION / largest)).astype(np.int16)
    return directions


def _signs(n: int) -> npt.NDArray[np.int16]:
    """Directions to begin with: -1 and 1, the same on every machine."""
    place = np.arange(n * COMPONENTS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    place ^= place >> np.uint64(31)
    place *= np.uint64(0xBF58476D1CE4E5B9)
    signs: npt.NDArray[np.int16] = (place >> np.uint64(62) & np.uint64(2)).astype(np.int16) - np.int16(1)
    return signs.reshape(COMPONENTS, n)


@dataclass(frozen=True)
class _Directions:
    """Directions in which rows of the coarse copy vary, strongest first.

    Attributes:
        vectors: int16 ``[16, w]``, of the same span.
        turn: float64 ``[16, 16]``; ``turn.T @ vectors`` are the directions, orthonormal.
        sums: int32 ``[16, m]``, products of the vectors with the rows that they were found in.
        powers: float64 ``[16]``, energy of those rows along each direction.
    """

    vectors: npt.NDArray[np.int16]
    turn: Floats
    sums: Vectors
    powers: Floats

    def excess(self, levels: Ints) -> Floats:
        """Share of the energy of other rows along each direction, less what independent entries would have there.

        Columns differ in energy, so a direction of noise, too, has more than its part; but no more than the columns
        that it consists of.
        """
        columns = np.square(levels, dtype=np.int32).sum(axis=0).astype(np.float64)
        energy = max(columns.sum(), 1.0)
        along = np.square(_rotate(_sums(self.vectors, levels), self.turn)).sum(axis=1)
        by_chance = (np.square(_rotate(self.vectors.astype(np.int32), self.turn)) * columns).sum(axis=1)
        shares: Floats = (along - by_chance) / energy
        return shares


def _sums(vectors: npt.NDArray[np.int16], levels: Ints) -> Vectors:
    sums = np.empty((COMPONENTS, len(levels)), np.int32)
    _forward(levels, vectors, sums)
    return sums


def _find(sample: Ints) -> _Directions:
    vectors = _signs(sample.shape[1])
    for _ in range(_ROUNDS):
        vectors = _refined(vectors, sample)
    return _turned(vectors, sample)


def _refined(vectors: npt.NDArray[np.int16], levels: Ints) -> npt.NDArray[np.int16]:
    across = np.empty((COMPONENTS, levels.shape[1]), np.int32)
    _backward(levels, _orthogonal(_sums(vectors, levels)), across)
    return _orthogonal(across)


def _turned(vectors: npt.NDArray[np.int16], levels: Ints) -> _Directions:
    sums = _sums(vectors, levels)
    root = _inverse_root(_gram(vectors.astype(np.int32)))
    inner = _product(_product(np.ascontiguousarray(root.T), _gram(sums)), root)
    turn = _eigen(inner)
    powers = np.maximum(np.diag(inner), 0.0)
    order = np.argsort(-powers, kind="stable")
    return _Directions(vectors, _product(root, np.ascontiguousarray(turn[:, order])), sums, powers[order])


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
    table = levels_of_tokens(counts)

    def levels(first: int, stride: int) -> Ints:
        part = np.empty((-(-(rows - first) // stride), width), np.int8)
        _levels(context, tokens, table, column, first, stride, part)
        return part

    # Found in some rows and judged by others: in the rows that it was found in, a direction of noise looks good.
    stride = max(2, rows * width // _SAMPLED)
    some, others = levels(0, stride), levels(stride // 2, stride)
    found = _find(some)
    moved = int(counts.sum() - counts[:, MIDDLE].sum())
    needed = _PRICE * (rows + width) / (_GAIN * max(moved, 1))
    rank = int((found.excess(others) > needed).sum())
    if not rank:
        return None
    if stride == 2:
        whole = np.empty((rows, width), np.int8)
        whole[0::2], whole[1::2] = some, others
        found = _turned(_refined(found.vectors, whole), whole)
    else:
        # In large blocks, the sample's directions are as good as any.
        whole = levels(0, 1)
        found = _turned(found.vectors, whole)
    turn = np.ascontiguousarray(found.turn[:, :rank])
    left, right = _rotate(found.sums, turn), _rotate(found.vectors.astype(np.int32), turn)
    strength = np.sqrt(found.powers[:rank])[:, None]
    # Both sides of a component get the same typical size, so that one step suits all.
    size = np.sqrt(strength / math.sqrt(rows * width))
    step = _FINENESS * math.sqrt((rows + width) / (rows * width))
    left *= size * math.sqrt(rows) / strength / step
    right *= size * math.sqrt(width) / step
    return _rounded(left), _rounded(right)


def _rounded(factors: Floats) -> Ints:
    return np.clip(np.rint(factors), -MAX_FACTOR, MAX_FACTOR).astype(np.int8)


def size_bounds(row_factors: Ints, column_factors: Ints) -> npt.NDArray[np.int16]:
    """Bounds that divide the predictions' sizes into eight classes, equally filled, int16 ``[7]``."""
    stride = max(1, row_factors.shape[1] * column_factors.shape[1] // _SIZED)
    # Small integers: their sums are exact in float32, whatever the order.
    sample = row_factors[:, ::stride].T.astype(np.float32) @ column_factors.astype(np.float32)
    counts = np.bincount(np.abs(sample).astype(np.int64).reshape(-1))
    reached = np.cumsum(counts) * SIZES
    return np.searchsorted(reached, sample.size * np.arange(1, SIZES), side="right").astype(np.int16)
