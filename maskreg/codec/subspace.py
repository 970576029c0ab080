"""The directions in which most rows of a matrix vary.

They are found by subspace iteration (N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM
Review 53, 2011, section 4.4) on small integers. The same input gives the same directions on every machine: large sums
are of integers, and the small matrices in float64 are worked on in a fixed order, without a linear algebra library.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

COMPONENTS = 16
"""Looked for at most."""

_MAX_DIRECTION = 127
_ROUNDS = 2

_SUMMED = 64
"""Rows whose sums of levels times directions fit 16 bits."""

_NEGLIGIBLE = 1e-14
"""Square of a symmetric matrix's entry to the product of the two diagonal ones, under which it is as good as 0."""

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int16]
Directions = npt.NDArray[np.int16]
"""``[components, n]``, like vectors."""
Vectors = npt.NDArray[np.int32]


@kernel
def forward(levels: Levels, directions: Directions, sums: Vectors) -> None:
    """``sums = directions @ levels.T``: int16 ``[m, w]`` and ``[k, w]``, int32 ``[k, m]``."""
    for row in range(levels.shape[0]):
        line = levels[row]
        for component in range(directions.shape[0]):
            direction = directions[component]
            total = np.int32(0)
            for column in range(line.size):
                total = np.int32(total + np.int32(np.int32(line[column]) * np.int32(direction[column])))
            sums[component, row] = total


@kernel
def _add_four(total: Levels, levels: Levels, row: int, direction: Levels) -> None:
    """Add four rows from ``row`` on, each times its place in a direction."""
    one, two, three, four = levels[row], levels[row + 1], levels[row + 2], levels[row + 3]
    by_one, by_two, by_three, by_four = direction[row], direction[row + 1], direction[row + 2], direction[row + 3]
    for column in range(total.size):
        pair = np.int16(np.int16(one[column] * by_one) + np.int16(two[column] * by_two))
        other = np.int16(np.int16(three[column] * by_three) + np.int16(four[column] * by_four))
        total[column] = np.int16(total[column] + np.int16(pair + other))


@kernel
def backward(levels: Levels, directions: Directions, sums: Vectors) -> None:
    """``sums = directions @ levels``: int16 ``[m, w]`` and ``[k, m]``, int32 ``[k, w]``."""
    total = np.empty(levels.shape[1], np.int16)
    sums[:] = 0
    for begin in range(0, levels.shape[0], _SUMMED):
        end = min(begin + _SUMMED, levels.shape[0])
        for component in range(directions.shape[0]):
            direction = directions[component]
            total[:] = 0
            for row in range(begin, end - 3, 4):
                _add_four(total, levels, row, direction)
            for row in range(end - (end - begin) % 4, end):
                line, factor = levels[row], direction[row]
                for column in range(total.size):
                    total[column] = np.int16(total[column] + np.int16(line[column] * factor))
            all_rows = sums[component]
            for column in range(total.size):
                all_rows[column] = np.int32(all_rows[column] + np.int32(total[column]))


@kernel
def _gram(left: Vectors, right: Vectors) -> Floats:
    """``left @ right.T``, which is symmetric."""
    components = left.shape[0]
    gram = np.empty((components, components))
    for one in range(components):
        for other in range(one + 1):
            a, b = left[one], right[other]
            total = np.int64(0)
            for i in range(a.size):
                total += np.int64(a[i]) * np.int64(b[i])
            gram[one, other] = gram[other, one] = np.float64(total)
    return gram


@kernel
def _inverse_root(gram: Floats) -> Floats:
    """``root`` so that ``root.T @ vectors`` is orthonormal (Cholesky, inverted); 0 where one depends on others."""
    components = gram.shape[0]
    lower = np.zeros_like(gram)
    for row in range(components):
        for column in range(row + 1):
            value = gram[row, column]
            for k in range(column):
                value -= lower[row, k] * lower[column, k]
            if row == column:
                lower[row, row] = math.sqrt(value) if value > 1e-9 * gram[row, row] else 0.0
            else:
                lower[row, column] = value / lower[column, column] if lower[column, column] > 0 else 0.0
    root = np.zeros_like(gram)
    for column in range(components):
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
        turned = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                if matrix[p, q] * matrix[p, q] <= _NEGLIGIBLE * abs(matrix[p, p] * matrix[q, q]):
                    continue
                turned = True
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
        if not turned:
            break
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
def rotate(vectors: npt.NDArray[np.signedinteger], turn: Floats) -> Floats:
    """``turn.T @ vectors``, float64 ``[r, n]``, in a fixed order."""
    rotated = np.zeros((turn.shape[1], vectors.shape[1]))
    for component in range(turn.shape[1]):
        line = rotated[component]
        for k in range(turn.shape[0]):
            factor, vector = turn[k, component], vectors[k]
            if factor:
                for i in range(line.size):
                    line[i] += vector[i] * factor
    return rotated


@kernel
def as_directions(vectors: Floats) -> Directions:
    """Rounded to integers up to 127."""
    # The largest at each place first, and then of all: several are compared at a time.
    largest = np.full(vectors.shape[1], 1e-300)
    for component in range(vectors.shape[0]):
        line = vectors[component]
        for i in range(line.size):
            value = abs(line[i])
            largest[i] = value if value > largest[i] else largest[i]
    directions = np.empty(vectors.shape, np.int16)
    scale = _MAX_DIRECTION / largest.max()
    for component in range(vectors.shape[0]):
        line, rounded = vectors[component], directions[component]
        for i in range(line.size):
            rounded[i] = np.int16(np.rint(line[i] * scale))
    return directions


@kernel
def _orthogonal(vectors: Vectors) -> Directions:
    """Orthogonal directions of the same span, as integers up to 127."""
    return as_directions(rotate(vectors, _inverse_root(_gram(vectors, vectors))))


@kernel
def _signs(n: int) -> Directions:
    """Directions to begin with: -1 and 1, the same on every machine."""
    signs = np.empty((COMPONENTS, n), np.int16)
    for component in range(COMPONENTS):
        for i in range(n):
            place = np.uint64(component * n + i) * np.uint64(0x9E3779B97F4A7C15)
            place = (place ^ (place >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
            signs[component, i] = np.int16((place >> np.uint64(62)) & np.uint64(2)) - np.int16(1)
    return signs


class Found(NamedTuple):
    """Directions in which rows of the coarse copy vary, strongest first.

    Attributes:
        vectors: int16 ``[k, w]``, of the same span.
        turn: float64 ``[k, k]``; ``turn.T @ vectors`` are the directions, orthonormal.
        sums: int32 ``[k, m]``, products of the vectors with the rows that they were found in.
        powers: float64 ``[k]``, energy of those rows along each direction.
    """

    vectors: Directions
    turn: Floats
    sums: Vectors
    powers: Floats


@kernel
def excess(found: Found, levels: Levels) -> Floats:
    """Share of the energy of other rows along each direction, less what independent entries would have there.

    Columns differ in energy, so a direction of noise, too, has more than its part; but no more than the columns that
    it consists of.
    """
    vectors, turn = found.vectors.astype(np.int32), found.turn
    columns = np.zeros(levels.shape[1], np.int32)
    for row in range(levels.shape[0]):
        line = levels[row]
        for column in range(columns.size):
            columns[column] = np.int32(columns[column] + np.int32(np.int32(line[column]) * np.int32(line[column])))
    energy = np.float64(max(columns.sum(), 1))
    sums = np.empty((vectors.shape[0], levels.shape[0]), np.int32)
    forward(levels, found.vectors, sums)
    beyond = _gram(sums, sums) - _gram(vectors, vectors * columns)
    shares = np.zeros(turn.shape[1])
    for component in range(shares.size):
        for one in range(turn.shape[0]):
            for other in range(turn.shape[0]):
                shares[component] += turn[one, component] * beyond[one, other] * turn[other, component]
    return shares / energy


@kernel
def refined(vectors: Directions, levels: Levels) -> Directions:
    """Directions of a span that is closer to those in which most rows vary."""
    sums, across = np.empty((vectors.shape[0], levels.shape[0]), np.int32), np.empty(vectors.shape, np.int32)
    forward(levels, vectors, sums)
    backward(levels, _orthogonal(sums), across)
    return _orthogonal(across)


@kernel
def turned(vectors: Directions, sums: Vectors) -> Found:
    """Directions of vectors whose products with rows are known."""
    wide = vectors.astype(np.int32)
    root = _inverse_root(_gram(wide, wide))
    inner = _product(_product(np.ascontiguousarray(root.T), _gram(sums, sums)), root)
    turn = _eigen(inner)
    powers = np.maximum(np.diag(inner), 0.0)
    order = np.argsort(-powers, kind="mergesort")
    return Found(vectors, _product(root, np.ascontiguousarray(turn[:, order])), sums, powers[order])


@kernel
def find(sample: Levels) -> Found:
    """Directions in which the rows of a sample vary most."""
    vectors = _signs(sample.shape[1])
    for _ in range(_ROUNDS):
        vectors = refined(vectors, sample)
    sums = np.empty((vectors.shape[0], sample.shape[0]), np.int32)
    forward(sample, vectors, sums)
    return turned(vectors, sums)
