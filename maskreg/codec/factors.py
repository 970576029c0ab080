"""Factors: a matrix of low rank that predicts which way, and how far, the coordinates of an update moved.

An update is a sum of outer products of activations and gradients, so few components often carry much of it.

1. *Coarse copy.* How much each number changed, from its exponent and its ULP step, as a level of -3 to 3, where 2 is
   the typical change. Outliers are clipped, literals and coordinates that did not move are 0.

       typical change 2^-13: a weight of exponent -7 that moved 1 ULP (2^-14) has level 1, one that moved 2 ULPs level 2

2. *Rank.* Directions are searched in one sample of rows, and judged in another: each has a share of the energy there,
   beyond what independent entries would have. A component pays when its share saves more bits than its factors take:
   ``8 * moved * share > 4.5 * (rows + width)``. Their number is the rank; 0 means no factors.

       2048 x 2048, half moved: 8 * 2.1e6 * share > 4.5 * 4,096, so a share of 0.11 % pays

   After one round of the iteration most large blocks show that none will; for the others it goes on.

3. *Fit.* One more round of the iteration over all rows, with three components to spare, gives the directions of the
   columns; products with them give the rows' factors.
4. *Quantize.* Both sides of a component are scaled to the same typical size, then divided by one step for all and
   rounded to -31 .. 31. So strong components have large factors, and weak ones, whose product matters less, fewer
   levels and shorter codes.

The directions in which most rows of a matrix vary are found by subspace iteration (N. Halko, P. G. Martinsson, J. A.
Tropp, "Finding structure with randomness", SIAM Review 53, 2011, section 4.4). With A the coarse copy, ``[m, w]``::

    V = 16 random sign vectors, [16, w]
    a few times:
            S = V A^T               products with the rows, [16, m]
            V = orthonormal(S) A    combinations of the rows; directions in which many rows vary grow fastest
            V = orthonormal(V)
    S = V A^T; rotate V so that the rows of S are orthogonal, strongest first (eigenvectors of S S^T, 16 x 16)

The same input gives the same factors on every machine and with any number of vector lanes, as a codec must: the large
products are of integers, so their order does not matter, and the small matrices are in float64, in a fixed order of
plain operations, without a linear algebra library. The kernel has the measured constants: native/src/fit.c.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Ints
from maskreg.codec.contexts import MAX_FACTOR, SIZES, Matrix
from maskreg.native import library
from maskreg.parallel import Buffers

_COMPONENTS = 16  # directions that are searched for, at most
_SAMPLED = 1 << 17  # coordinates, in whole rows, of the sample in which directions are searched
_SIZED = 1 << 14  # predictions, in whole rows, from which size classes are made


def fit_factors(matrix: Matrix, counts: npt.NDArray[np.int64], buffers: Buffers) -> tuple[Ints, Ints] | None:
    """Row and column factors of a block, int8 ``[rank, rows]`` and ``[rank, width]``; None when they would not pay.

    ``counts``: int64 ``[256, 64]``, tokens by exponent. ``buffers``: of the encoder, whose block is written later, into
    the memory of the levels.
    """
    compiled = library()
    source, tokens, rows, width, column = matrix
    # Rows 0, stride, ... to search in; those halfway between them to judge by.
    stride = max(2, rows * width // _SAMPLED)
    inputs = compiled.read(source), compiled.read(tokens), source.size, rows, width, column
    # One buffer of each type, because asking for one takes longer than some of the steps.
    of_width, own = _COMPONENTS * width, _COMPONENTS * (rows + width)
    sampled = -(-rows // stride) + -(-(rows - stride // 2) // stride)
    level_room = (sampled + rows) * width
    small = compiled.write(buffers.array("block", level_room + own, np.int8))
    large = compiled.write(buffers.array("sums", own + width, np.int32))
    room = small, small + level_room, small + level_room + of_width, large + of_width, large, large + own
    of_rows, of_columns = np.empty(_COMPONENTS * rows, np.int8), np.empty(of_width, np.int8)
    rank = compiled.lib.maskreg_fit_factors(
        compiled.ffi.new("maskreg_matrix *", inputs), compiled.read(counts), stride,
        compiled.ffi.new("maskreg_fit_room *", room), compiled.write(of_rows), compiled.write(of_columns),
    )  # fmt: skip
    if not rank:
        return None
    return of_rows[: rank * rows].reshape(rank, rows), of_columns[: rank * width].reshape(rank, width)


def size_bounds(row_factors: Ints, column_factors: Ints) -> npt.NDArray[np.int16]:
    """Bounds between eight size classes that are about equally common, int16 ``[7]``: octiles of a histogram."""
    (rank, rows), width = row_factors.shape, column_factors.shape[1]
    counts, stride = np.zeros(rank * MAX_FACTOR * MAX_FACTOR + 1, np.int32), max(1, rows * width // _SIZED)
    bounds: npt.NDArray[np.int16] = np.empty(SIZES - 1, np.int16)
    compiled = library()
    compiled.lib.maskreg_size_bounds(
        compiled.read(row_factors), rows, compiled.read(column_factors), width,
        rank, stride, compiled.write(counts), compiled.write(bounds),
    )  # fmt: skip
    return bounds
