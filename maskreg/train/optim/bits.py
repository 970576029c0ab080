"""The mask of one tensor beside the tensor: packed bits on its device, and how many of them come before each word.

With both, word ``w``'s coordinates are known to be numbers ``rank[w]`` and on among the masked ones, so that any
range of a tensor can be worked on alone, by a thread or a GPU's block, with state packed to the masked coordinates.
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
"""Words worked on at once where there is no fused kernel: 2^20 coordinates, whose workspace stays below 64 MiB."""

_MOST = (1 << 31) - 1


class Slice(NamedTuple):
    """A range of words, the coordinates that they stand for, and the packed entries of those."""

    words: slice
    coordinates: slice
    entries: slice


@dataclass(frozen=True, eq=False)
class Bits:
    """The mask of a flat tensor, or of this process's part of one.

    Attributes:
        words: int64 ``[ceil(numel / 64)]``; bit ``i`` of word ``w`` is coordinate ``64 w + i``.
        rank: int32 ``[ceil(numel / 64)]``; masked coordinates before each word.
        numel: coordinates.
        nnz: masked ones.
    """

    words: torch.Tensor
    rank: torch.Tensor
    numel: int
    nnz: int

    @classmethod
    def of(cls, packed: npt.NDArray[np.uint8], numel: int, device: torch.device | str = "cpu") -> Bits:
        """Bits as :func:`maskreg.mask.packed.pack` gives them, with their ranks, on a device.

        Raises:
            UsageError: 2^31 masked coordinates or more in one process.
        """
        if packed.size != packed_bytes(numel):
            raise ValueError(f"{packed.size} bytes are not the mask of {numel} coordinates")
        words = np.ascontiguousarray(packed).view(np.uint64)
        ends = np.bitwise_count(words).cumsum(dtype=np.int64)
        nnz = int(ends[-1]) if ends.size else 0
        if nnz > _MOST:
            raise UsageError(
                f"{nnz:,} masked coordinates of one tensor in one process; at most {_MOST:,} fit",
                hint="shard the model over more processes",
            )
        rank = np.zeros(words.size, np.int32)
        rank[1:] = ends[:-1]
        here = torch.from_numpy(words.view(np.int64).copy()), torch.from_numpy(rank)
        return cls(here[0].to(device), here[1].to(device), numel, nnz)

    def to(self, device: torch.device) -> Bits:
        """The same on another device; itself where it is there."""
        if self.words.device == device:
            return self
        return Bits(self.words.to(device), self.rank.to(device), self.numel, self.nnz)

    def complement(self) -> Bits:
        """All other coordinates, on the same device."""
        words = ~self.words
        if self.numel % PAD_BITS:
            words[-1] &= (1 << self.numel % PAD_BITS) - 1
        before = torch.arange(0, self.numel, PAD_BITS, dtype=torch.int32, device=self.rank.device)
        return Bits(words, before - self.rank, self.numel, self.numel - self.nnz)

    @property
    def nbytes(self) -> int:
        """Bytes that bits and ranks take: 3/16 a coordinate."""
        return self.words.nbytes + self.rank.nbytes

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The whole tensor in slices of ``SLICE_WORDS`` words, without those that have nothing masked."""
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

    def places(self, part: Slice) -> torch.Tensor:
        """Masked coordinates of a slice, counted from its first, in order; int64 ``[entries]``."""
        octets = self.words[part.words].view(torch.uint8)
        shifts = torch.arange(8, dtype=torch.uint8, device=octets.device)
        return ((octets[:, None] >> shifts) & 1).reshape(-1).nonzero().squeeze(1)

    def each(self) -> Iterator[tuple[Slice, torch.Tensor]]:
        """Every slice with its places."""
        for part in self.slices:
            yield part, self.places(part)
