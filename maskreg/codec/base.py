"""What a codec is: one block of 16-bit values, coded with the other side's bits as context.

A codec is pure: no I/O, no state between blocks, the same bytes for the same input. Its name is written into
manifests, so any change to its bytes is a new codec under a new name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Codes = npt.NDArray[np.uint16]

BLOCK_NUMEL = 1 << 22
"""Coordinates in one block at most: 16 leaves. Every block decodes on its own."""


class Codec(Protocol):
    """Codes blocks of ``1 <= n <= 2^22`` values. Safe to use from many threads."""

    name: str

    def encode(self, context: Codes, values: Codes) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``."""

    def decode(self, context: Codes, block: bytes) -> Codes:
        """The values, uint16 ``[n]``, given the very context they were coded with.

        Memory is bounded by n, whatever the block says.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """

    def decode_tensor(self, context: torch.Tensor, block: bytes) -> torch.Tensor:
        """Like :meth:`decode`, for int16 ``[n]`` on any device; the result is on that device.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """
