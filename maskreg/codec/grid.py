"""Where the coordinates of a block lie in their matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Grid(NamedTuple):
    """Where a span of coordinates lies in a matrix that is stored row by row.

    Attributes:
        width: coordinates in a row; 0 for a span that belongs to no matrix.
        column: column of the span's first coordinate.
    """

    width: int = 0
    column: int = 0


FLAT = Grid()
"""A span that belongs to no matrix."""


def row_width(shape: Sequence[int]) -> int:
    """Width of a tensor seen as a matrix; 0 for a vector or a scalar.

    Stacked matrices (``[experts, rows, columns]``) are one tall matrix; the kernels of a convolution
    (``[out, in, height, width]``) are one row per output channel.
    """
    if len(shape) < 2:
        return 0
    return shape[-1] if len(shape) < 4 else math.prod(shape[1:])


def grid_at(shape: Sequence[int], start: int) -> Grid:
    """Grid of a span of a tensor that begins at element ``start`` in C order."""
    width = row_width(shape)
    return Grid(width, start % width) if width else FLAT
