"""Coordinates that moved, and their new bits: what a process keeps of a publication, and what it sends to others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Movers
from maskreg.codec.movers import find_movers, swapped
from maskreg.mask import pack, packed_bytes, unpack

Bits = npt.NDArray[Any]
Positions = npt.NDArray[np.uint32]


class Moved(NamedTuple):
    """Coordinates that moved, ascending positions uint32 ``[k]``, and their new bits, unsigned integers ``[k]``."""

    positions: Positions
    values: Bits


class Kept(NamedTuple):
    """The same in less memory, at most a sixteenth more than all bits: positions, or bits packed as in a mask."""

    where: npt.NDArray[Any]
    values: Bits

    @classmethod
    def of(cls, moved: Moved) -> Kept:
        """Keep what moved, at least one coordinate."""
        positions, values = moved
        length = int(positions[-1]) + 1
        if positions.nbytes <= packed_bytes(length):
            return cls(positions, values)
        mask = np.zeros(length, np.bool_)
        mask[positions] = True
        return cls(pack(mask), values)

    @property
    def moved(self) -> Moved:
        """What was kept."""
        if self.where.dtype == np.uint32:
            return Moved(self.where, self.values)
        return Moved(np.flatnonzero(unpack(self.where, 8 * self.where.size)).astype(np.uint32), self.values)


def moved_between(before: Bits, after: Bits) -> Moved:
    """What moved between two arrays of one dtype and length."""
    if before.dtype == np.uint16:
        return Moved(*find_movers(np.ascontiguousarray(before), np.ascontiguousarray(after)))
    positions = np.flatnonzero(before != after).astype(np.uint32)
    return Moved(positions, after[positions])


def write(bits: Bits, kept: Kept) -> None:
    """Write what moved into the bits that it moved from."""
    positions, values = kept.moved
    if bits.dtype == np.uint16:
        swapped(bits, Movers(positions, values))
    else:
        bits[positions] = values
