"""Where the coordinates of a block lie in their matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Grid(NamedTuple):
    """Place of a run of coordinates in a matrix that is stored row by row.

    Attributes:
        width: coordinates in a row; 0 for a run that belongs to no matrix.
        column: column of the run's first coordinate.
    """

    width: int = 0
    column: int = 0


FLAT = Grid()
"""Of a run that belongs to no matrix."""


def row_width(shape: Sequence[int]) -> int:
    """Width of the matrix that a tensor is; 0 for a vector or a number.

    Stacked matrices (``[experts, rows, columns]``) are rows upon rows; the kernels of a convolution
    (``[out, in, height, width]``) are one row for each output.
    """
    if len(shape) < 2:
        return 0
    return shape[-1] if len(shape) < 4 else math.prod(shape[1:])


def grid_at(shape: Sequence[int], start: int) -> Grid:
    """Place of a run of a tensor that begins at element ``start`` in C order."""
    width = row_width(shape)
    return Grid(width, start % width) if width else FLAT
