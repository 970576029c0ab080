"""Contexts: what the source's code, and a little side information, predict about how a coordinate moved.

Every coordinate falls into a *cell*, and each cell has a frequency table. The better a cell predicts its tokens, the
fewer bits they take.

*Exponent.* Post-training adds an update that is nearly independent of the weight, and bf16 keeps only what exceeds half
a unit in the last place. So the weight's exponent e predicts best how many ULPs it moves: one binade up, half as many.
Without side information the cell is e itself, within a window of 16 exponents that begins at ``base / 2``.

*Scales.* A row or column that moves more than its exponents predict gets a scale in half exponents, and counts as if
its exponents were that much lower:

    class = 2 * e - base - row_scale - column_scale,  clamped to 0 .. 31

    base 230, e = 120: class 10. In a row of scale 3 (moves 2^1.5 times as far as usual) and a column of scale -1: 8

*Factors.* An update is close to a matrix of low rank. The prediction p = sum of row_factor * column_factor over the
components says which way a coordinate moved, by its sign, and how far, by its size:

    cell = 8 * class + how many of seven bounds |p| reaches;    flip the ULP step when p and the weight differ in sign

    p = -40, bounds 5 10 20 30 50 70 90: size 4. A weight of 0.02 then likely shrinks: its magnitude moves by -|step|.
    The flip turns that into +|step|. A weight of -0.02 likely grows in magnitude: +|step| already, no flip.

Everything here is integer arithmetic: a decoder must come to the very same cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Grid, Ints
from maskreg.native import Library

PLAIN_CLASSES = 16
"""Exponents in the window; those outside it count as its first or last."""

SCALED_CLASSES = 32
"""Half exponents in the window when there are scales."""

MAX_SCALE = 15
"""Largest magnitude of a scale, in half exponents."""

MAX_RANK = 32
"""Most components that a prediction can have."""

MAX_FACTOR = 31
"""Largest magnitude of a factor. 32 components of 31 * 31 sum to 30,752: predictions fit 16 bits."""

SIZES = 8
"""Size classes of predictions."""

MAX_CELLS = SCALED_CLASSES * SIZES
"""Cells with scales and factors; a cell's number is a byte."""

TILE = 1 << 12
"""Coordinates processed at a time, so that intermediate results stay in the first-level cache."""


@dataclass(frozen=True)
class Contexts:
    """What decides the cells of a block's coordinates.

    Attributes:
        grid: where the coordinates lie; its width is at least 1.
        base: twice the exponent of the first class.
        row_scales, column_scales: int8 ``[rows]`` and ``[width]``, in half exponents; both empty without scales.
        row_factors, column_factors: int8 ``[rank, rows]`` and ``[rank, width]``; rank 0 without factors.
        bounds: int16 ``[7]``, in any order: a prediction's size class is how many of them it reaches in magnitude.
    """

    grid: Grid
    base: int
    row_scales: Ints = field(default_factory=lambda: np.empty(0, np.int8))
    column_scales: Ints = field(default_factory=lambda: np.empty(0, np.int8))
    row_factors: Ints = field(default_factory=lambda: np.empty((0, 0), np.int8))
    column_factors: Ints = field(default_factory=lambda: np.empty((0, 0), np.int8))
    bounds: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(SIZES - 1, np.int16))

    @property
    def scaled(self) -> bool:
        """Whether there are scales."""
        return self.row_scales.size > 0

    @property
    def rank(self) -> int:
        """Components of the prediction; 0 without factors."""
        return len(self.row_factors)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return (SCALED_CLASSES if self.scaled else PLAIN_CLASSES) * (SIZES if self.rank else 1)

    def structure(self, compiled: Library) -> tuple[Any, Any]:
        """``maskreg_contexts`` of kernels.h, and what has to live as long as it."""
        rank, width, ffi = self.rank, self.grid.width, compiled.ffi
        rows = self.row_factors.shape[1] if rank else self.row_scales.size
        scales, factors, bounds, pairs = (ffi.NULL, ffi.NULL), (ffi.NULL, ffi.NULL), ffi.NULL, ffi.NULL
        if self.scaled:
            scales = compiled.read(self.row_scales), compiled.read(self.column_scales)
        if rank:
            factors = compiled.read(self.row_factors), compiled.read(self.column_factors)
            bounds = compiled.read(self.bounds)
            pairs = compiled.write(np.empty(-(-rank // 2) * 2 * width, np.uint8))
            compiled.lib.maskreg_pair_factors(factors[1], rank, width, pairs)
        fields = (width, rows, self.base, rank, self.scaled, *scales, *factors, pairs, bounds)
        return ffi.new("maskreg_contexts *", fields), fields


class Matrix(NamedTuple):
    """A block as rows of a matrix, for fitting scales and factors; the first and last row can be incomplete.

    ``tokens``: uint8 ``[n]``, not flipped. ``column``: of the first coordinate.
    """

    source: npt.NDArray[np.uint16]
    tokens: npt.NDArray[np.uint8]
    rows: int
    width: int
    column: int


def rows_of(grid: Grid, n: int) -> int:
    """Rows that a span of ``n`` coordinates touches."""
    return -(-(grid.column + n) // grid.width)
