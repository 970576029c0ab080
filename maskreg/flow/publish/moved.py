"""Coordinates that moved, and their new bits: what a process keeps of a publication, and what it sends to others.

Most coordinates move by few steps between neighboring bit patterns. So distances between positions and steps are sent,
as bytes, and compressed: less than two bytes for each coordinate of 16 bits at a density of 1 %::

    positions  3 4 260 900      gaps  3 0 255+0 255+255+129
    bits       old -> new       steps new - old, zigzag, low bytes before high bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maskreg.artifact.shards import pack_frame, unpack_frame
from maskreg.codec.base import Movers
from maskreg.codec.movers import find_movers, swapped
from maskreg.mask import pack, packed_bytes, unpack

if TYPE_CHECKING:
    import numpy.typing as npt

    Bits = npt.NDArray[Any]
    Bytes = npt.NDArray[np.uint8]
    Positions = npt.NDArray[np.uint32]

_ESCAPE = 255


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


def packed(moved: Sequence[Moved], before: Sequence[Bits]) -> list[Bytes]:
    """Bytes for another process: what moved of several blocks, whose bits at these positions were ``before``."""
    header = np.zeros((len(moved), 2), np.int64)
    body: list[Bytes] = []
    for row, (positions, values), old in zip(header, moved, before, strict=True):
        gaps = _gaps(positions)
        row[:] = positions.size, gaps.size
        body += [gaps, _steps(values - old)]
    frame = pack_frame(np.concatenate(body), 1) if body else b""
    return [header.reshape(-1).view(np.uint8), np.frombuffer(bytearray(frame), np.uint8)]


def unpacked(parcels: Sequence[Bytes], dtypes: Sequence[np.dtype[Any]]) -> Iterator[tuple[Positions, Bits]]:
    """Of each block, positions that moved, and what to add to their bits (modulo their width)."""
    header = parcels[0].copy().view(np.int64).reshape(-1, 2)
    widths = [dtype.itemsize for dtype in dtypes]
    body = np.empty(sum(int(k) * width + int(size) for (k, size), width in zip(header, widths, strict=True)), np.uint8)
    if body.size:
        unpack_frame(parcels[1].tobytes(), body)
    for (count, size), dtype in zip(header.tolist(), dtypes, strict=True):
        gaps, steps, body = np.split(body, [size, size + count * dtype.itemsize])
        yield _positions(gaps), _from_steps(steps, dtype)


def _gaps(positions: Positions) -> Bytes:
    """Coordinates between neighbors: 255 for each 255, then the rest."""
    full, rest = np.divmod(np.diff(positions.astype(np.int64), prepend=-1) - 1, _ESCAPE)
    gaps = np.full(int(full.sum()) + full.size, _ESCAPE, np.uint8)
    gaps[np.cumsum(full + 1) - 1] = rest
    return gaps


def _positions(gaps: Bytes) -> Positions:
    ends = np.flatnonzero(gaps != _ESCAPE)
    return (np.cumsum(gaps, dtype=np.int64)[ends] + np.arange(ends.size)).astype(np.uint32)


def _steps(steps: Bits) -> Bytes:
    bits = 8 * steps.itemsize - 1
    signed = steps.view(f"<i{steps.itemsize}")
    zigzag = np.ascontiguousarray((signed << 1) ^ (signed >> bits))
    return np.ascontiguousarray(zigzag.view(np.uint8).reshape(-1, steps.itemsize).T).reshape(-1)


def _from_steps(planes: Bytes, dtype: np.dtype[Any]) -> Bits:
    zigzag = np.ascontiguousarray(planes.reshape(dtype.itemsize, -1).T).reshape(-1).view(dtype)
    steps: Bits = (zigzag >> 1) ^ (0 - (zigzag & 1)).astype(dtype)
    return steps
