"""The directions in which most rows of a matrix vary, by subspace iteration.

Source: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness" (SIAM Review 53, 2011, section
4.4). With A the coarse copy, ``[m, w]``, of small integers:

    V = 16 random sign vectors, [16, w]
    twice:  S = V A^T               products with the rows, [16, m]
            V = orthonormal(S) A    combinations of the rows; directions in which many rows vary grow fastest
            V = orthonormal(V)
    S = V A^T; rotate V so that the rows of S are orthogonal, strongest first (eigenvectors of S S^T, 16 x 16)

The same input gives the same directions on every machine and with any number of vector lanes, as a codec must:

- The large products are of integers, so their order does not matter. Levels are within +-3 and directions are rounded
  to +-127: 64 rows sum to at most 64 * 3 * 127 = 24,384, which fits 16 bits.
- The small matrices are in float64, in a fixed order of plain operations, without a linear algebra library.
- Orthonormal vectors are never formed. V stays in integers, and a 16 x 16 matrix says how to combine them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

COMPONENTS = 16
"""Directions that are searched for."""

_MAX_DIRECTION = 127
_ROUNDS = 2

_SUMMED = 64
"""Rows whose products with a direction sum to no more than 16 bits."""

_NEGLIGIBLE = 1e-14
"""Squared entry of a symmetric matrix, relative to its two diagonal entries, that counts as 0."""

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int16]
Directions = npt.NDArray[np.int16]
"""``[components, n]``, integers up to 127."""
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
    """Add rows ``row`` to ``row + 3``, each times its entry of a direction: one load and store of the sums for four."""
    a0, a1, a2, a3 = levels[row], levels[row + 1], levels[row + 2], levels[row + 3]
    d0, d1, d2, d3 = direction[row], direction[row + 1], direction[row + 2], direction[row + 3]
    for column in range(total.size):
        left = np.int16(np.int16(a0[column] * d0) + np.int16(a1[column] * d1))
        right = np.int16(np.int16(a2[column] * d2) + np.int16(a3[column] * d3))
        total[column] = np.int16(total[column] + np.int16(left + right))


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
    for row in range(components):
        for column in range(row + 1):
            a, b = left[row], right[column]
            total = np.int64(0)
            for i in range(a.size):
                total += np.int64(a[i]) * np.int64(b[i])
            gram[row, column] = gram[column, row] = np.float64(total)
    return gram


@kernel
def _inverse_root(gram: Floats) -> Floats:
    """``root`` such that ``root.T @ vectors`` is orthonormal, from ``gram = vectors @ vectors.T``.

    With the Cholesky factor ``gram = L L^T``, root is the inverse of ``L^T``. A vector that depends on those before it
    would divide by 0: its column is 0, and so is its direction.
    """
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
    """Eigenvectors of a symmetric matrix, in columns; the matrix becomes diagonal.

    Cyclic Jacobi: each rotation (tangent t, cosine c, sine s) in the plane of p and q makes entry (p, q) 0.
    """
    n = matrix.shape[0]
    vectors = np.eye(n)
    for _ in range(12):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                if matrix[p, q] * matrix[p, q] <= _NEGLIGIBLE * abs(matrix[p, p] * matrix[q, q]):
                    continue
                rotated = True
                # the smaller of the two angles that make entry (p, q) 0
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
        if not rotated:
            break
    return vectors


@kernel
def _product(left: Floats, right: Floats) -> Floats:
    result = np.zeros((left.shape[0], right.shape[1]))
    for i in range(left.shape[0]):
        for k in range(left.shape[1]):
            for j in range(right.shape[1]):
                result[i, j] += left[i, k] * right[k, j]
    return result


@kernel
def rotate(vectors: npt.NDArray[np.signedinteger], rotation: Floats) -> Floats:
    """``rotation.T @ vectors``, float64 ``[r, n]``, in a fixed order."""
    rotated = np.zeros((rotation.shape[1], vectors.shape[1]))
    for component in range(rotation.shape[1]):
        line = rotated[component]
        for k in range(rotation.shape[0]):
            factor, vector = rotation[k, component], vectors[k]
            if factor:
                for i in range(line.size):
                    line[i] += vector[i] * factor
    return rotated


@kernel
def as_directions(vectors: Floats) -> Directions:
    """Vectors, scaled together and rounded to integers up to 127."""
    # The largest of each column first: that compiles to vectors, a maximum of all does not.
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
    """Orthogonal directions that span the same subspace, as integers up to 127."""
    return as_directions(rotate(vectors, _inverse_root(_gram(vectors, vectors))))


@kernel
def _signs(n: int) -> Directions:
    """Random directions of -1 and 1 to begin with, the same on every machine: hashes of their positions."""
    signs = np.empty((COMPONENTS, n), np.int16)
    for component in range(COMPONENTS):
        for i in range(n):
            word = np.uint64(component * n + i) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
            signs[component, i] = np.int16((word >> np.uint64(62)) & np.uint64(2)) - np.int16(1)
    return signs


class Subspace(NamedTuple):
    """Directions in which the rows of a matrix vary, strongest first.

    Attributes:
        vectors: int16 ``[k, w]``, which span it.
        rotation: float64 ``[k, k]``; ``rotation.T @ vectors`` are the directions, orthonormal.
        sums: int32 ``[k, m]``, products of the vectors with the rows.
        powers: float64 ``[k]``, energy of the rows along each direction.
    """

    vectors: Directions
    rotation: Floats
    sums: Vectors
    powers: Floats


@kernel
def excess(subspace: Subspace, levels: Levels) -> Floats:
    """Share of the energy of *other* rows along each direction, beyond what independent entries would have there.

    In the rows that it was fitted to, even a direction of noise looks strong; in other rows it does not. Columns differ
    in energy, so noise also has more than its share along a direction of strong columns, but only the sum of their
    energies, weighted by the direction's squares. That is what is subtracted:

        excess(d) = (sum over rows of (d . row)^2 - sum over columns of d_c^2 * energy_c) / energy of all

    Args:
        subspace: of some rows.
        levels: int16 ``[m, w]``, rows that it was not fitted to.
    """
    vectors, rotation = subspace.vectors.astype(np.int32), subspace.rotation
    columns = np.zeros(levels.shape[1], np.int32)
    for row in range(levels.shape[0]):
        line = levels[row]
        for column in range(columns.size):
            columns[column] = np.int32(columns[column] + np.int32(np.int32(line[column]) * np.int32(line[column])))
    energy = np.float64(max(columns.sum(), 1))
    sums = np.empty((vectors.shape[0], levels.shape[0]), np.int32)
    forward(levels, subspace.vectors, sums)
    beyond = _gram(sums, sums) - _gram(vectors, vectors * columns)
    shares = np.zeros(rotation.shape[1])
    for component in range(shares.size):
        for left in range(rotation.shape[0]):
            for right in range(rotation.shape[0]):
                shares[component] += rotation[left, component] * beyond[left, right] * rotation[right, component]
    return shares / energy


@kernel
def refined(vectors: Directions, levels: Levels) -> Directions:
    """One round of the iteration: directions closer to those in which most rows vary."""
    sums, combined = np.empty((vectors.shape[0], levels.shape[0]), np.int32), np.empty(vectors.shape, np.int32)
    forward(levels, vectors, sums)
    backward(levels, _orthogonal(sums), combined)
    return _orthogonal(combined)


@kernel
def sorted_subspace(vectors: Directions, sums: Vectors) -> Subspace:
    """The subspace of some vectors, rotated to its principal directions.

    Args:
        vectors: int16 ``[k, w]``.
        sums: int32 ``[k, m]``, their products with the rows.
    """
    wide = vectors.astype(np.int32)
    root = _inverse_root(_gram(wide, wide))
    inner = _product(_product(np.ascontiguousarray(root.T), _gram(sums, sums)), root)
    eigenvectors = _eigen(inner)
    powers = np.maximum(np.diag(inner), 0.0)
    order = np.argsort(-powers, kind="mergesort")
    return Subspace(vectors, _product(root, np.ascontiguousarray(eigenvectors[:, order])), sums, powers[order])


@kernel
def find_subspace(sample: Levels) -> Subspace:
    """Directions in which the rows of a sample vary most.

    Args:
        sample: int16 ``[m, w]``, levels of -3 to 3.
    """
    vectors = _signs(sample.shape[1])
    for _ in range(_ROUNDS):
        vectors = refined(vectors, sample)
    sums = np.empty((vectors.shape[0], sample.shape[0]), np.int32)
    forward(sample, vectors, sums)
    return sorted_subspace(vectors, sums)
