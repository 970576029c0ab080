"""What a codec is: one block of 16-bit values, coded with the other side's bits as context.

A codec is pure: no I/O, no state between blocks, the same bytes for the same input. Its name is written into
manifests, so any change to what its bytes mean is a new codec under a new name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from maskreg.codec.grid import FLAT, Grid

if TYPE_CHECKING:
    import torch

Codes = npt.NDArray[np.uint16]
Block = bytes | memoryview


class Codec(Protocol):
    """Codes blocks of ``1 <= n <= 2^22`` values. Safe to use from many threads."""

    name: str

    def encode(self, context: Codes, values: Codes, grid: Grid = FLAT) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``.

        Args:
            context: bits that the reader has.
            values: bits that the reader is to get.
            grid: where the coordinates lie in their matrix. It only affects the size; the block stores what it needs.
        """

    def decode(self, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """The values, uint16 ``[n]``, given the context they were coded with.

        Memory is bounded by n, whatever the block claims.

        Args:
            context: uint16 ``[n]``.
            block: the block.
            values: uint16 ``[n]`` to fill and return, apart from ``context``; a new array by default.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """

    def decode_into(self, context: Codes, block: Block, start: int, values: Codes) -> None:
        """Fill ``values`` with a span, as :meth:`decode_part` gives it.

        Args:
            context: uint16 ``[m]``, the context of the span alone.
            block: the whole block.
            start: the span's first coordinate, an entry point.
            values: uint16 ``[m]``, filled; apart from ``context``.

        Raises:
            ValueError: the span does not begin and end at entry points of the block.
            CorruptError: the block is damaged.
        """

    def entry_numel(self, block: Block) -> int:
        """Coordinates between entry points of a block, where :meth:`decode_part` may begin and end.

        Raises:
            CorruptError: this is not a block.
        """

    def decode_part(self, context: Codes, block: Block, start: int) -> Codes:
        """A span of the values, without decoding those before it: uint16 ``[m]``.

        Args:
            context: uint16 ``[m]``, the context of the span alone.
            block: the whole block.
            start: the span's first coordinate, an entry point; the span ends at one, or at the block's end.

        Raises:
            ValueError: the span does not begin and end at entry points of the block.
            CorruptError: the block is damaged.
        """

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[Block]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once, as a GPU prefers; results are on the contexts' device.

        Args:
            contexts: int16 ``[n]`` of each block, all on one device.
            blocks: one for each context.

        Raises:
            CorruptError: a block cannot be one of as many values as its context has.
        """
