"""One tensor of a checkpoint, without its data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from maskreg.tensors.dtypes import ITEM_BYTES

MAX_RANK = 64
"""Maximum number of dimensions of a tensor, which is that of numpy arrays."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint, without its data.

    Attributes:
        name: as the checkpoint names it.
        dtype: safetensors code, such as ``BF16``.
        shape: empty for a 0-D tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a 0-D tensor."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Size of one element in bytes."""
        return ITEM_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.numel * self.item_bytes
