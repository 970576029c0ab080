"""Packed bits of one tensor: bit i of byte j is coordinate 8 j + i in C order; 1 means moved, trainable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PAD_BITS = 64
"""A tensor's bits are padded with zeros to a multiple of this, so that words of 64 never span two tensors."""


def packed_bytes(numel: int) -> int:
    """Bytes that the bits of ``numel`` coordinates take, padding included."""
    return -(-numel // PAD_BITS) * (PAD_BITS // 8)


def pack(moved: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Pack booleans of any shape, taken in C order, into padded little-order bits.

    Returns:
        uint8 ``[packed_bytes(numel)]``.
    """
    flat = moved.reshape(-1)
    bits = np.packbits(flat, bitorder="little")
    missing = packed_bytes(flat.size) - bits.size
    return np.concatenate([bits, np.zeros(missing, np.uint8)]) if missing else bits


def unpack(packed: npt.NDArray[np.uint8], numel: int) -> npt.NDArray[np.bool_]:
    """The first ``numel`` bits as booleans, 1-D.

    Raises:
        ValueError: ``packed`` holds fewer bits.
    """
    if packed.size * 8 < numel:
        raise ValueError(f"{packed.size} bytes hold no {numel} bits")
    return np.unpackbits(packed, count=numel, bitorder="little").view(np.bool_)


@dataclass(frozen=True, eq=False)
class TensorMask:
    """The mask of one tensor.

    Attributes:
        name: the tensor's name.
        shape: its shape.
        packed: uint8, as :func:`pack` gives it.
    """

    name: str
    shape: tuple[int, ...]
    packed: npt.NDArray[np.uint8]

    @property
    def numel(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def nnz(self) -> int:
        """Number of coordinates that moved."""
        return int(np.bitwise_count(self.packed).sum(dtype=np.int64))

    @property
    def density(self) -> float:
        """nnz / numel; 0 for an empty tensor."""
        return self.nnz / self.numel if self.numel else 0.0

    def to_bool(self) -> npt.NDArray[np.bool_]:
        """The mask in the tensor's shape, one boolean per coordinate."""
        return unpack(self.packed, self.numel).reshape(self.shape)


Mask = Mapping[str, TensorMask]
"""A mask is to coordinates what a state dict is to tensors; lazily loaded."""
