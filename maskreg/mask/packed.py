"""Packed bits of one tensor: bit i of byte j is coordinate 8 j + i in C order; 1 means moved, or trainable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.native import library
from maskreg.words import counted, percent

PAD_BITS = 64
"""A tensor's bits are padded with zeros to a multiple of this, so that no 64-bit word belongs to two tensors."""


def packed_bytes(numel: int) -> int:
    """Bytes that the bits of ``numel`` coordinates take, padding included."""
    return -(-numel // PAD_BITS) * (PAD_BITS // 8)


def pack(moved: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Pack booleans of any shape, in C order, into padded little-order bits, uint8 ``[packed_bytes(numel)]``."""
    flat = moved.reshape(-1)
    bits = np.packbits(flat, bitorder="little")
    missing = packed_bytes(flat.size) - bits.size
    return np.concatenate([bits, np.zeros(missing, np.uint8)]) if missing else bits


def unpack(packed: npt.NDArray[np.uint8], numel: int) -> npt.NDArray[np.bool_]:
    """The first ``numel`` bits as booleans, 1-D."""
    if packed.size * 8 < numel:
        raise ValueError(f"{packed.size} bytes hold fewer than {numel} bits")
    return np.unpackbits(packed, count=numel, bitorder="little").view(np.bool_)


def pack_spans(spans: Iterable[npt.NDArray[np.bool_]]) -> npt.NDArray[np.uint8]:
    """Like :func:`pack`, for the booleans of one tensor in consecutive spans of any length."""
    parts: list[npt.NDArray[np.uint8]] = []
    rest = np.empty(0, np.bool_)
    for span in spans:
        rest = np.concatenate([rest, span.reshape(-1)])
        whole = rest.size // PAD_BITS * PAD_BITS
        parts.append(pack(rest[:whole]))
        rest = rest[whole:]
    return np.concatenate([*parts, pack(rest)])


def flip(packed: npt.NDArray[np.uint8], numel: int) -> npt.NDArray[np.uint8]:
    """The complement of a mask of ``numel`` coordinates; padding stays 0."""
    flipped = ~packed[: packed_bytes(numel)]
    whole, rest = divmod(numel, 8)
    if rest:
        flipped[whole] &= np.uint8((1 << rest) - 1)
        whole += 1
    flipped[whole:] = 0
    return flipped


def overlap(left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> int:
    """How many coordinates two masks of one tensor share."""
    if left.shape != right.shape or left.size % (PAD_BITS // 8):
        raise ValueError(f"masks of {left.size} and {right.size} bytes are not of one tensor")
    compiled = library()
    pointers = [compiled.read(np.ascontiguousarray(side)) for side in (left, right)]
    total: int = compiled.lib.maskreg_count_overlap(*pointers, left.size // (PAD_BITS // 8))
    return total


def nnz_of(packed: npt.NDArray[np.uint8]) -> int:
    """How many coordinates of one tensor a mask has."""
    return overlap(packed, packed)


@dataclass(frozen=True, eq=False)
class TensorMask:
    """The mask of one tensor; ``packed`` is uint8, as :func:`pack` returns it."""

    name: str
    shape: tuple[int, ...]
    packed: npt.NDArray[np.uint8]

    def __repr__(self) -> str:
        return f"<TensorMask {self.name} {self.shape}: {percent(self.density)} of {counted(self.numel, 'coordinate')}>"

    @property
    def numel(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def nnz(self) -> int:
        """Number of coordinates that moved."""
        return nnz_of(self.packed)

    @property
    def density(self) -> float:
        """nnz / numel; 0 for an empty tensor."""
        return self.nnz / self.numel if self.numel else 0.0

    def to_bool(self) -> npt.NDArray[np.bool_]:
        """The mask in the tensor's shape, one boolean per coordinate."""
        return unpack(self.packed, self.numel).reshape(self.shape)


Mask = Mapping[str, TensorMask]
"""Masks by tensor name, as a state dict holds tensors; can be loaded lazily."""
