"""What a codec is: one block of 16-bit values, coded with the other side's bits as context.

A codec is pure: no I/O, no state between blocks, the same bytes for the same input. Its name is written into
manifests, so any change to what its bytes mean is a new codec under a new name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch


class Grid(NamedTuple):
    """Where a span lies in a matrix stored row by row: the row's width, 0 for no matrix, and its first column."""

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


Codes = npt.NDArray[np.uint16]
Bits = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int8]
Block = bytes | memoryview


class Movers(NamedTuple):
    """The coordinates of a block whose code changes.

    Attributes:
        positions: uint32 ``[k]``, ascending.
        codes: uint16 ``[k]``, what they become.
    """

    positions: npt.NDArray[np.uint32]
    codes: Codes


class Codec(Protocol):
    """Codes blocks of ``1 <= n <= 2^22`` values. Safe to use from many threads."""

    name: str

    def encode(self, context: Codes, values: Codes | Movers, grid: Grid = FLAT) -> bytes:
        """Code values, uint16 ``[n]`` or where they differ from the context, for a reader who has that, ``[n]`` too.

        ``grid``, where the coordinates lie in their matrix, only affects the size; the block stores what it needs.
        """

    def decode(self, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """The values, uint16 ``[n]``, given the context they were coded with; in ``values``, if given.

        Memory is bounded by n for hostile blocks too.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """

    def movers(self, context: Codes, block: Block, before: Movers = ...) -> Movers:
        """Where :meth:`decode` gives other codes than the context's, and which; NaN and -0 are codes like others.

        ``before``: movers of the context, in which the block goes on; of both together it is said what moves.

        Memory is bounded by n for hostile blocks too.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[Block]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once, as a GPU prefers; int16 ``[n]`` each, all on one device.

        Raises:
            CorruptError: a block cannot be one of as many values as its context has.
        """
