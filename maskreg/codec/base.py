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


class Codec(Protocol):
    """Codes blocks of ``1 <= n <= 2^22`` values. Safe to use from many threads."""

    name: str

    def is_compiled(self, *, encode: bool) -> bool:
        """Whether the first block is coded (or decoded) at once; else it takes some 20 seconds, once a machine."""

    def encode(self, context: Codes, values: Codes, grid: Grid = FLAT) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``.

        Args:
            context: bits that the reader has.
            values: bits that the reader wants.
            grid: where the coordinates lie in their matrix. It is only of use to the size, and the block keeps it.
        """

    def decode(self, context: Codes, block: bytes) -> Codes:
        """The values, uint16 ``[n]``, given the very context they were coded with.

        Memory is bounded by n, whatever the block says.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """

    def entry_numel(self, block: bytes) -> int:
        """Coordinates from one entry point of a block to the next: where :meth:`decode_part` may begin and end.

        Raises:
            CorruptError: this is no block.
        """

    def decode_part(self, context: Codes, block: bytes, start: int) -> Codes:
        """A run of the values, without decoding those before it: uint16 ``[m]``.

        Args:
            context: uint16 ``[m]``, the context of the run alone.
            block: the whole block.
            start: the run's first coordinate, at an entry point; the run ends at one, or where the block ends.

        Raises:
            ValueError: the run does not begin and end at entry points of the block.
            CorruptError: the block is damaged.
        """

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[bytes]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once, as a GPU wants them; the results are where the contexts are.

        Args:
            contexts: int16 ``[n]`` of each block, all on one device.
            blocks: as many.

        Raises:
            CorruptError: a block cannot be one of as many values as its context has.
        """
