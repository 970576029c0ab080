"""The mask of one tensor, indexed for parallel work on packed state.

State is packed to the masked coordinates, so where the state of a coordinate lies depends on how many masked ones come
before it. A rank index answers that for any 64-bit word of the mask, without a scan from the beginning::

    coordinate       0 . . . 63   64 . . . 127  128 . . . 191
    mask word        0b0101       0b0000        0b1110            (low bits, lowest first: coordinates 0, 2; 129-131)
    rank of word     0            2             2                 masked coordinates before the word
    state entries    [0, 2)       [2, 2)        [2, 5)

Within a word, the entry of coordinate ``i`` is ``rank[i // 64] + popcount(word & ((1 << i % 64) - 1))``. So any range
of words can be updated alone, by a thread or a GPU's program: its weights and its state both form a range, and ranges
of different workers are disjoint. The index takes 4 bytes per word, 1/16 of a byte per coordinate, the bits 1/8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError
from maskreg.mask.packed import PAD_BITS, packed_bytes

SLICE_WORDS = 1 << 14
"""Words per slice where there is no fused kernel: 2^20 coordinates, whose workspace stays below 64 MiB."""

_MAX_NNZ = (1 << 31) - 1


class Slice(NamedTuple):
    """A range of words, their coordinates, and the packed entries of those."""

    words: slice
    coordinates: slice
    entries: slice


@dataclass(frozen=True, eq=False)
class Bits:
    """The mask of a flat tensor, or of the local part of one.

    Attributes:
        words: int64 ``[ceil(numel / 64)]``; bit ``i`` of word ``w`` is coordinate ``64 w + i``.
        rank: int32 ``[ceil(numel / 64)]``; masked coordinates before each word.
        numel: coordinates.
        nnz: masked coordinates.
    """

    words: torch.Tensor
    rank: torch.Tensor
    numel: int
    nnz: int

    @classmethod
    def of(cls, packed: npt.NDArray[np.uint8], numel: int, device: torch.device | str = "cpu") -> Bits:
        """Index bits packed by :func:`maskreg.mask.packed.pack`."""
        if packed.size != packed_bytes(numel):
            raise ValueError(f"{packed.size} bytes cannot be the mask of {numel} coordinates")
        words = np.ascontiguousarray(packed).view(np.uint64)
        ends = np.bitwise_count(words).cumsum(dtype=np.int64)
        nnz = int(ends[-1]) if ends.size else 0
        if nnz > _MAX_NNZ:
            raise UsageError(
                f"{nnz:,} masked coordinates of one tensor in one process; the limit is {_MAX_NNZ:,}",
                hint="shard the model over more processes",
            )
        rank = np.zeros(words.size, np.int32)
        rank[1:] = ends[:-1]
        signed = torch.from_numpy(words.view(np.int64).copy())
        return cls(signed.to(device), torch.from_numpy(rank).to(device), numel, nnz)

    def to(self, device: torch.device) -> Bits:
        """The same on another device; itself on its own."""
        if self.words.device == device:
            return self
        return Bits(self.words.to(device), self.rank.to(device), self.numel, self.nnz)

    def complement(self) -> Bits:
        """All other coordinates, on the same device."""
        words = ~self.words
        if self.numel % PAD_BITS:
            words[-1] &= (1 << self.numel % PAD_BITS) - 1
        coordinates = torch.arange(0, self.numel, PAD_BITS, dtype=torch.int32, device=self.rank.device)
        return Bits(words, coordinates - self.rank, self.numel, self.numel - self.nnz)

    def coordinates(self, entries: torch.Tensor) -> torch.Tensor:
        """Where entries of packed state lie, int64 ``[k]`` both: the set bit of the word that has so many before it."""
        # The last word of that rank: those before it have nothing masked.
        number = torch.searchsorted(self.rank, entries.int(), right=True) - 1
        left, words, inside = entries - self.rank[number], self.words[number], torch.zeros_like(entries)
        for width in (32, 16, 8, 4, 2, 1):  # is it in the lower half of what is left of the word?
            low = words & ((1 << width) - 1)
            count = _set_bits(low)
            is_above = left >= count
            left, inside = left - count * is_above, inside + width * is_above
            words = torch.where(is_above, words >> width & ((1 << width) - 1), low)
        return number * PAD_BITS + inside

    @property
    def nbytes(self) -> int:
        """Bytes of bits and ranks: 3/16 per coordinate."""
        return self.words.nbytes + self.rank.nbytes

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The tensor in slices of :data:`SLICE_WORDS` words, without those that have nothing masked."""
        starts = range(0, self.words.numel(), SLICE_WORDS)
        firsts = [*self.rank[::SLICE_WORDS].tolist(), self.nnz]
        return tuple(
            Slice(
                slice(start, start + SLICE_WORDS),
                slice(start * PAD_BITS, min((start + SLICE_WORDS) * PAD_BITS, self.numel)),
                slice(first, last),
            )
            for start, first, last in zip(starts, firsts[:-1], firsts[1:], strict=True)
            if last > first
        )

    def offsets(self, part: Slice) -> torch.Tensor:
        """Masked coordinates of a slice, counted from its first, ascending; int64 ``[entries]``."""
        octets = self.words[part.words].view(torch.uint8)
        shifts = torch.arange(8, dtype=torch.uint8, device=octets.device)
        return ((octets[:, None] >> shifts) & 1).reshape(-1).nonzero().squeeze(1)

    def masked_slices(self) -> Iterator[tuple[Slice, torch.Tensor]]:
        """Every slice with its :meth:`offsets`."""
        for part in self.slices:
            yield part, self.offsets(part)


def _set_bits(values: torch.Tensor) -> torch.Tensor:
    """How many bits are set in each of some integers below 2^32: in pairs, fours and bytes, and in all of them."""
    values = values - (values >> 1 & 0x55555555)
    values = (values & 0x33333333) + (values >> 2 & 0x33333333)
    return ((values + (values >> 4) & 0x0F0F0F0F) * 0x01010101 >> 24) & 0xFF
