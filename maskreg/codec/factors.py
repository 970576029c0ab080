"""Factors: a matrix of low rank that predicts which way, and how far, the coordinates of an update moved.

An update is a sum of outer products of activations and gradients, so few components often carry much of it.

1. *Coarse copy.* How much each number changed, from its exponent and its ULP step, as a level of -3 to 3, where 2 is
   the typical change. Outliers are clipped, literals and coordinates that did not move are 0.

       typical change 2^-13: a weight of exponent -7 that moved 1 ULP (2^-14) has level 1, one that moved 2 ULPs level 2

2. *Rank.* Directions are searched in one sample of rows, and judged in another: each has a share of the energy there
   (:func:`maskreg.codec.factors.excess`). A component pays when its share saves more bits than its factors take:
   ``8 * moved * share > 4.5 * (rows + width)``. Their number is the rank; 0 means no factors.

       2048 x 2048, half moved: 8 * 2.1e6 * share > 4.5 * 4,096, so a share of 0.11 % pays

   After one round of the iteration most large blocks show that none will; for the others it goes on.

3. *Fit.* One more round of the iteration over all rows, with three components to spare, gives the directions of the
   columns; products with them give the rows' factors.
4. *Quantize.* Both sides of a component are scaled to the same typical size, then divided by one step for all and
   rounded to -31 .. 31. So strong components have large factors, and weak ones, whose product matters less, fewer
   levels and shorter codes.

The same input gives the same factors on every machine, as said below.

The directions in which most rows of a matrix vary, by subspace iteration.

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

from maskreg.codec.bits import Ints
from maskreg.codec.contexts import MAX_FACTOR, SIZES, Matrix
from maskreg.codec.rans import TOKENS
from maskreg.codec.ulp_steps import FARTHEST, FEWER_BITS, LITERAL, MIDDLE, NEAREST
from maskreg.native import Library, library
from maskreg.parallel import Buffers

COMPONENTS = 16
"""Directions that are searched for, at most."""

_MAX_DIRECTION = 127

_NEGLIGIBLE = 1e-3  # squared entry of a symmetric matrix, relative to its two diagonal entries, that counts as 0
_SWEEPS = 12  # rounds over all entries of a symmetric matrix, at most, until those beside the diagonal are negligible

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
    """Directions in which the rows of a sample, int8 ``[m, w]``, vary most; ``begin`` may be close already."""
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
    """Random directions of -1 and 1, no more than rows, int8 ``[k, n]``: hashes of their positions."""
    signs = np.empty((min(COMPONENTS, rows), n), np.int8)
    words = np.arange(signs.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ words >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9)
    signs.reshape(-1)[:] = (words >> np.uint64(62) & np.uint64(2)).astype(np.int8) - np.int8(1)
    return signs


def orthogonal(vectors: Vectors) -> Directions:
    """Orthogonal directions that span the same subspace, int8; vectors are int32 ``[k, n]``."""
    return as_directions(vectors, _inverse_root(_gram(vectors, vectors)))


def as_directions(vectors: Vectors, rotation: Floats) -> Directions:
    """``rotation.T @ vectors``, scaled together and rounded to integers up to 127, int8 ``[r, n]``."""
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
    """The subspace of some vectors, rotated to its principal directions; ``sums`` are their products with the rows."""
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


_SAMPLED = 1 << 17  # coordinates, in whole rows, of the sample in which directions are searched
_ROUNDS = 2  # rounds of the iteration; more gain little, measured
_LARGE = 1 << 20  # coordinates of a block from which on a look at it after the first rounds costs less than the others
_FIRST_ROUNDS = 1  # rounds after which most large blocks without components are told from the others

_PROMISING = 0.5
"""Share of the energy after the first rounds, relative to what pays, from which on a direction may come to pay."""

_SPARE = 3  # components fitted beyond the rank: they absorb what would otherwise mix into those that are kept
_GAIN = 8.0  # bits that a component saves per moved coordinate and unit of its share of the energy; measured
_PRICE = 4.5  # bits of a factor, about
_FINENESS = 3.3  # quantization step of the factors, relative to the square root of factors per coordinate; measured
_SIZED = 1 << 14  # predictions, in whole rows, from which size classes are made

_BUFFERS = Buffers()

Counts = npt.NDArray[np.int64]
Bounds = npt.NDArray[np.int16]


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


def typical_change(counts: Counts) -> int:
    """Median size of the changes, in eighths of a binade as of :func:`_eighths`; 0 when nothing changed."""
    sizes = 8 * np.maximum(np.arange(255), 1)[:, None] + _EIGHTHS
    of_size = np.zeros(int(sizes.max()) + 1, np.int64)
    np.add.at(of_size, sizes[:, _EIGHTHS >= 0], counts[:255, _EIGHTHS >= 0])
    reached = np.cumsum(of_size)
    return int(np.argmax(2 * reached >= reached[-1]))


def level_bounds(typical: int) -> Bounds:
    """The smallest changes of level 1, 2 and 3, where ``typical`` has level 2: int16 ``[3]``, in eighths of a binade.

    A change of ``8 * a + f`` eighths is ``2^a * (8 + f)`` units. Its level, 2 * change / typical, is rounded to the
    nearest integer, halves to the even one: it must be above 0.5, no less than 1.5, and above 2.5.

        typical 24, that is 64 units: bounds 9, 20 and 27, of 18, 48 and 88 units and levels .56, 1.5 and 2.75
    """
    fraction = typical & 7
    # Changes from four binades below the typical one on.
    units = (8 + np.arange(64) % 8) << np.arange(64) // 8
    typical_units = (8 + fraction) << 4
    reached = (4 * units > typical_units, 4 * units >= 3 * typical_units, 4 * units > 5 * typical_units)
    bounds: Bounds = (np.argmax(reached, axis=1) + typical - fraction - 32).astype(np.int16)
    return bounds


def levels_of(matrix: Matrix, bounds: Bounds, first: int, stride: int) -> Levels:
    """Rows ``first``, ``first + stride``, ... of the coarse copy, int8 ``[m, w]``; 0 beyond the block's ends."""
    source, tokens, rows, width, column = matrix
    chosen = range(first, rows, stride)
    levels = np.zeros((len(chosen), width), np.int8)
    for line, row in zip(levels, chosen, strict=True):
        begin, end = max(0, row * width - column), min((row + 1) * width - column, source.size)
        codes, own = source[begin:end], tokens[begin:end]
        exponents = (codes >> 7 & 0xFF).astype(np.int64)
        changes = 8 * np.maximum(exponents, 1) + _EIGHTHS[own]
        sizes = np.where((_EIGHTHS[own] >= 0) & (exponents < 255), np.searchsorted(bounds, changes, "right"), 0)
        at = begin + column - row * width
        line[at : at + own.size] = np.where((own < MIDDLE) == (codes < 1 << 15), -sizes, sizes)
    return levels


def fit_factors(matrix: Matrix, counts: Counts) -> tuple[Ints, Ints] | None:
    """Row and column factors of a block, int8 ``[rank, rows]`` and ``[rank, width]``; None when they would not pay."""
    rows, width = matrix.rows, matrix.width
    # Rows 0, stride, ... to search in; those halfway between them to judge by.
    stride = max(2, rows * width // _SAMPLED)
    if compiled := library():
        return _fitted(compiled, matrix, counts, stride)
    moved = int(counts.sum() - counts[:, MIDDLE].sum())
    needed = _PRICE * (rows + width) / (_GAIN * max(moved, 1))
    bounds = level_bounds(typical_change(counts))
    sample, others = (levels_of(matrix, bounds, first, stride) for first in (0, stride // 2))
    vectors, rounds = random_signs(*sample.shape), _ROUNDS
    if rows * width >= _LARGE:
        subspace = find_subspace(sample, vectors, _FIRST_ROUNDS)
        if excess(subspace, others).max() <= _PROMISING * needed:
            return None
        vectors, rounds = subspace.vectors, _ROUNDS - _FIRST_ROUNDS
    subspace = find_subspace(sample, vectors, rounds)
    rank = int((excess(subspace, others) > needed).sum())
    if not rank:
        return None
    kept = min(rank + _SPARE, len(subspace.vectors))
    whole = levels_of(matrix, bounds, 0, 1)
    vectors = as_directions(subspace.vectors.astype(np.int32), subspace.rotation[:, :kept])
    vectors = refined(vectors, whole)
    return _quantized(sorted_subspace(vectors, forward(whole, vectors)), rank)


def _fitted(compiled: Library, matrix: Matrix, counts: Counts, stride: int) -> tuple[Ints, Ints] | None:
    """The same by the kernel."""
    source, tokens, rows, width, column = matrix
    inputs = compiled.read(source), compiled.read(tokens), source.size, rows, width, column
    # One buffer of each type, because asking for one takes longer than some of the steps.
    of_width, own, level_room = COMPONENTS * width, COMPONENTS * (rows + width), (2 * rows + 2) * width
    small = compiled.write(_BUFFERS.array("fit bytes", level_room + own, np.int8))
    large = compiled.write(_BUFFERS.array("fit sums", own + width, np.int32))
    room = small, small + level_room, small + level_room + of_width, large + of_width, large, large + own
    of_rows, of_columns = np.empty(COMPONENTS * rows, np.int8), np.empty(of_width, np.int8)
    rank = compiled.lib.maskreg_fit_factors(
        compiled.ffi.new("maskreg_matrix *", inputs), compiled.read(counts), stride,
        compiled.ffi.new("maskreg_fit_room *", room), compiled.write(of_rows), compiled.write(of_columns),
    )  # fmt: skip
    if not rank:
        return None
    return of_rows[: rank * rows].reshape(rank, rows), of_columns[: rank * width].reshape(rank, width)


def _quantized(subspace: Subspace, rank: int) -> tuple[Ints, Ints]:
    """Row and column factors of the first ``rank`` directions.

    A component is ``left x right`` with right of norm 1 and left of norm sqrt(power) = strength. Scaled to
    ``size * sqrt(rows)`` and ``size * sqrt(width)``, both have the root mean square ``size``, and their product is
    still the component.
    """
    rotation = subspace.rotation[:, :rank]
    rows, width = subspace.sums.shape[1], subspace.vectors.shape[1]
    step = _FINENESS * math.sqrt((rows + width) / (rows * width))
    strengths = np.maximum(np.sqrt(subspace.powers[:rank]), 1e-30)
    sizes = np.sqrt(strengths / math.sqrt(rows * width))
    left = _rounded(subspace.sums, rotation, sizes * math.sqrt(rows) / strengths / step)
    return left, _rounded(subspace.vectors.astype(np.int32), rotation, sizes * math.sqrt(width) / step)


def _rounded(vectors: Vectors, rotation: Floats, scales: Floats) -> Ints:
    """``rotation.T @ vectors``, times a scale for each direction, as factors."""
    scaled = rotate(vectors, rotation) * scales[:, None].astype(np.float32)
    return np.rint(np.clip(scaled, -MAX_FACTOR, MAX_FACTOR)).astype(np.int8)


def size_bounds(row_factors: Ints, column_factors: Ints) -> Bounds:
    """Bounds between eight size classes that are about equally common, int16 ``[7]``: octiles of a histogram."""
    (rank, rows), width = row_factors.shape, column_factors.shape[1]
    counts, stride = np.zeros(rank * MAX_FACTOR * MAX_FACTOR + 1, np.int32), max(1, rows * width // _SIZED)
    bounds: Bounds = np.empty(SIZES - 1, np.int16)
    if compiled := library():
        compiled.lib.maskreg_size_bounds(
            compiled.read(row_factors), rows, compiled.read(column_factors), width,
            rank, stride, compiled.write(counts), compiled.write(bounds),
        )  # fmt: skip
        return bounds
    predicted = row_factors[:, ::stride].T.astype(np.int32) @ column_factors.astype(np.int32)
    reached = np.cumsum(np.bincount(np.abs(predicted).reshape(-1)))
    octiles = reached[-1] * np.arange(1, SIZES)
    bounds[:] = np.searchsorted(SIZES * reached, octiles, side="right")
    return bounds
