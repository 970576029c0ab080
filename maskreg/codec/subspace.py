"""The directions in which most rows of a matrix vary, by subspace iteration.

Source: N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness" (SIAM Review 53, 2011, section
4.4). With A the coarse copy, ``[m, w]``, of small integers:

    V = 16 random sign vectors, [16, w]
    a few times:
            S = V A^T               products with the rows, [16, m]
            V = orthonormal(S) A    combinations of the rows; directions in which many rows vary grow fastest
            V = orthonormal(V)
    S = V A^T; rotate V so that the rows of S are orthogonal, strongest first (eigenvectors of S S^T, 16 x 16)

This is what the steps of the kernel that fits factors compute, native/src/fit.h. The same input gives the same
directions on every machine and with any number of vector lanes, as a codec must:

- The large products are of integers, so their order does not matter. Levels are within +-3 and directions are rounded
  to +-127, so that both are bytes.
- The small matrices are in float64, in a fixed order of plain operations, without a linear algebra library; what they
  combine, in float32.
- Orthonormal vectors are never formed. V stays in integers, and a 16 x 16 matrix says how to combine them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

COMPONENTS = 16
"""Directions that are searched for, at most."""

_MAX_DIRECTION = 127

_NEGLIGIBLE = 1e-3
"""Squared entry of a symmetric matrix, relative to its two diagonal entries, that counts as 0."""

_SWEEPS = 12
"""Rounds over all entries of a symmetric matrix, at most, until those beside the diagonal are negligible."""

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int8]
Directions = npt.NDArray[np.int8]
"""``[components, n]``, integers up to 127."""
Vectors = npt.NDArray[np.int32]


class Subspace(NamedTuple):
    """Directions in which the rows of a matrix vary, strongest first.

    Attributes:
        vectors: int8 ``[k, w]``, which span it.
        rotation: float64 ``[k, k]``; ``rotation.T @ vectors`` are the directions, orthonormal.
        sums: int32 ``[k, m]``, products of the vectors with the rows.
        powers: float64 ``[k]``, energy of the rows along each direction.
    """

    vectors: Directions
    rotation: Floats
    sums: Vectors
    powers: Floats


def find_subspace(sample: Levels, begin: Directions, rounds: int) -> Subspace:
    """Directions in which the rows of a sample vary most.

    ``sample``: int8 ``[m, w]``, levels of -3 to 3. ``begin``: of :func:`random_signs`, or directions that are close
    already.
    """
    vectors = begin
    for _ in range(rounds):
        vectors = refined(vectors, sample)
    return sorted_subspace(vectors, forward(sample, vectors))


def refined(vectors: Directions, levels: Levels) -> Directions:
    """One round of the iteration: directions closer to those in which most rows vary."""
    return orthogonal(backward(levels, orthogonal(forward(levels, vectors))))


def forward(levels: Levels, directions: Directions) -> Vectors:
    """``directions @ levels.T``: int8 ``[m, w]`` and ``[k, w]``, int32 ``[k, m]``."""
    return directions.astype(np.int32) @ levels.T.astype(np.int32)


def backward(levels: Levels, directions: Directions) -> Vectors:
    """``directions @ levels``: int8 ``[m, w]`` and ``[k, m]``, int32 ``[k, w]``."""
    return directions.astype(np.int32) @ levels.astype(np.int32)


def random_signs(rows: int, n: int) -> Directions:
    """Random directions of -1 and 1 to begin with, int8 ``[k, n]``: hashes of their positions, the same everywhere.

    ``rows``: of the sample; they vary in no more directions.
    """
    signs = np.empty((min(COMPONENTS, rows), n), np.int8)
    words = np.arange(signs.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ words >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9)
    signs.reshape(-1)[:] = (words >> np.uint64(62) & np.uint64(2)).astype(np.int8) - np.int8(1)
    return signs


def orthogonal(vectors: Vectors) -> Directions:
    """Orthogonal directions that span the same subspace, int8; vectors are int32 ``[k, n]``."""
    return as_directions(vectors, _inverse_root(_gram(vectors, vectors)))


def as_directions(vectors: Vectors, rotation: Floats) -> Directions:
    """``rotation.T @ vectors``, scaled together and rounded to integers up to 127, int8 ``[r, n]``.

    ``vectors``: int32 ``[k, n]``. ``rotation``: float64 ``[k, r]``.
    """
    rotated = rotate(vectors, rotation)
    largest = np.abs(rotated).max(initial=np.float32(1e-30))
    rounded: Directions = np.rint(rotated * (np.float32(_MAX_DIRECTION) / largest)).astype(np.int8)
    return rounded


def rotate(vectors: npt.NDArray[np.integer], rotation: Floats) -> npt.NDArray[np.float32]:
    """``rotation.T @ vectors``, float32 ``[r, n]``, in a fixed order, as NumPy computes it.

    The result is rounded to a few bits, so more precision would be lost.
    """
    rotated = np.zeros((rotation.shape[1], vectors.shape[1]), np.float32)
    for factors, vector in zip(rotation.astype(np.float32), vectors.astype(np.float32), strict=True):
        rotated += vector * factors[:, None]
    return rotated


def sorted_subspace(vectors: Directions, sums: Vectors) -> Subspace:
    """The subspace of some vectors, rotated to its principal directions.

    ``vectors``: int8 ``[k, w]``. ``sums``: int32 ``[k, m]``, their products with the rows.
    """
    wide = vectors.astype(np.int32)
    root = _inverse_root(_gram(wide, wide))
    inner = _product(_product(root.T, _gram(sums, sums)), root)
    eigenvectors = _eigen(inner)
    powers = np.maximum(np.diag(inner), 0.0)
    order = np.argsort(-powers, kind="stable")
    return Subspace(vectors, _product(root, eigenvectors[:, order]), sums, powers[order])


def excess(subspace: Subspace, levels: Levels) -> Floats:
    """Share of the energy of *other* rows along each direction, beyond what independent entries would have there.

    In the rows that it was fitted to, even a direction of noise looks strong; in other rows it does not. Columns differ
    in energy, so noise also has more than its share along a direction of strong columns, but only the sum of their
    energies, weighted by the direction's squares. That is what is subtracted:

        excess(d) = (sum over rows of (d . row)^2 - sum over columns of d_c^2 * energy_c) / energy of all

    ``levels``: int8 ``[m, w]``, rows that it was not fitted to.
    """
    rotation, vectors = subspace.rotation, subspace.vectors.astype(np.int32)
    sums = forward(levels, subspace.vectors)
    energies = np.square(levels, dtype=np.int32).sum(axis=0, dtype=np.int32)
    beyond = _gram(sums, sums) - _gram(vectors, vectors * energies)
    shares = np.zeros(len(vectors))
    for left, of_left in enumerate(rotation):
        for right, of_right in enumerate(rotation):
            shares += of_left * beyond[left, right] * of_right
    return shares / max(int(energies.sum()), 1)


def _gram(left: Vectors, right: Vectors) -> Floats:
    """``left @ right.T``, which is symmetric."""
    return (left.astype(np.int64) @ right.T.astype(np.int64)).astype(np.float64)


def _inverse_root(gram: Floats) -> Floats:
    """``root`` such that ``root.T @ vectors`` is orthonormal, from ``gram = vectors @ vectors.T``.

    With the Cholesky factor ``gram = L L^T``, root is the inverse of ``L^T``. A vector that depends on those before it
    would divide by 0: its column is 0, and so is its direction.
    """
    components = len(gram)
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
    for column in np.flatnonzero(np.diag(lower)).tolist():
        root[column, column] = 1.0 / lower[column, column]
        for row in range(column - 1, -1, -1):
            value = np.float64(0)
            for k in range(row + 1, column + 1):
                value -= lower[k, row] * root[k, column]
            root[row, column] = value / lower[row, row] if lower[row, row] > 0 else 0.0
    return root


def _eigen(matrix: Floats) -> Floats:
    """Eigenvectors of a symmetric matrix, in columns; the matrix becomes diagonal.

    Cyclic Jacobi: each rotation (tangent t, cosine c, sine s) in the plane of p and q makes entry (p, q) 0.
    """
    n = len(matrix)
    vectors = np.eye(n)
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                pq, pp, qq = float(matrix[p, q]), float(matrix[p, p]), float(matrix[q, q])
                if pq * pq <= _NEGLIGIBLE * abs(pp * qq):
                    continue
                rotated = True
                # the smaller of the two angles that make entry (p, q) 0
                theta = (qq - pp) / (2.0 * pq)
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                for lines in (matrix.T, matrix, vectors.T):
                    a, b = lines[p].copy(), lines[q].copy()
                    lines[p], lines[q] = c * a - s * b, s * a + c * b
        if not rotated:
            break
    return vectors


def _product(left: Floats, right: Floats) -> Floats:
    """``left @ right``, in a fixed order."""
    result = np.zeros((left.shape[0], right.shape[1]))
    for k in range(left.shape[1]):
        result += left[:, k, None] * right[k]
    return result
