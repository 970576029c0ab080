"""Thresholds: the size above which lie the m largest of many fp32 numbers, found by counting and not by sorting.

The bits of a positive fp32 number, read as a whole number, are in the order of the numbers. So counts of the upper 15
bits say in which bin the m-th largest lies, and counts of the lower 16 bits within that bin say which it is::

    m = 3 of   .71 .12 .35 .90 .36 .44      upper bits  .7 .1 .3 .9 .3 .4
    sweep 1    counts by upper bits: one .9, one .7, one .4 -> the third largest has upper bits .4
    sweep 2    counts of lower bits among those: .44

Equal sizes are taken in the order of their coordinates, so a third sweep finds where the last one taken lies. Zeros
need no order, since adding them or not is the same: where a threshold lies among them, as it does in an update that is
mostly 0, all of them are above it, and none are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.methods.base import Floats, Threshold, size_codes

UPPER = 1 << 15
LOWER = 1 << 16
_NONE = 0xFFFFFFFF

Codes = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]


class Tally(NamedTuple):
    """Counts of which most are 0, as they travel.

    Attributes:
        bins: where they are not, uint32 ``[k]``.
        counts: there, int64 ``[k]``.
    """

    bins: npt.NDArray[np.uint32]
    counts: Counts

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        """Of counts int64 ``[n]``."""
        bins = np.flatnonzero(counts)
        return cls(bins.astype(np.uint32), counts[bins])

    def add_to(self, total: Counts) -> None:
        """Add them to int64 ``[n]``."""
        total[self.bins] += self.counts


END = 1 << 62
"""End of a threshold that all of its size are above."""

NOTHING = Threshold(_NONE, 0)
"""A threshold above all."""

EVERYTHING = Threshold(0, END)
"""A threshold below all."""


@dataclass(frozen=True)
class Bin:
    """The counts of the upper bits narrowed a threshold down to this.

    Attributes:
        upper: upper bits of the size at the threshold.
        missing: how many of that bin are above the threshold.
    """

    upper: int
    missing: int


@dataclass(frozen=True)
class Edge:
    """The counts of the lower bits narrowed a threshold down to this.

    Attributes:
        code: bits of the size at the threshold.
        missing: how many of that size are above the threshold.
        equal: how many of that size there are.
    """

    code: int
    missing: int
    equal: int


_ZERO = Edge(0, 0, 0)
# A threshold among zeros: all of them are above it.


def count_upper(update: Floats, counts: Counts) -> None:
    """Add a tile to the counts of upper bits, int64 ``[2^15]``."""
    counts += np.bincount(size_codes(update) >> np.uint32(16), minlength=UPPER)


def count_lower(update: Floats, upper: int, counts: Counts) -> None:
    """Add a tile to the counts of lower bits among sizes with these upper bits, int64 ``[2^16]``; no zeros."""
    inside = codes_inside(update, upper)
    if inside.size:
        counts += np.bincount(inside & np.uint32(0xFFFF), minlength=LOWER)


def bin_of(counts: Counts, rank: int) -> Bin:
    """The bin of the ``rank``-th largest, of at least as many numbers; ``rank`` is positive."""
    upper, missing = _largest(counts, rank)
    return Bin(upper, missing)


def edge_of(counts: Counts, narrowed: Bin) -> Edge:
    """The size at the threshold, given the counts of lower bits in its bin."""
    if narrowed.missing > counts.sum():
        return _ZERO
    lower, missing = _largest(counts, narrowed.missing)
    return Edge(narrowed.upper << 16 | lower, missing, int(counts[lower]))


def codes_inside(update: Floats, upper: int) -> Codes:
    """Bits of the sizes with these upper bits, without zeros."""
    codes = size_codes(update)
    chosen = codes >> np.uint32(16) == np.uint32(upper)
    if not upper:
        chosen &= codes != 0
    inside: Codes = codes[chosen]
    return inside


def exact_edge(codes: Sequence[Codes], narrowed: Bin) -> Edge:
    """The size at the threshold, given all codes in its bin, without zeros."""
    inside = np.concatenate(codes)
    if narrowed.missing > inside.size:
        return _ZERO
    at = inside.size - narrowed.missing
    code = int(np.partition(inside, at)[at])
    larger = int(np.count_nonzero(inside > np.uint32(code)))
    return Edge(code, narrowed.missing - larger, int(np.count_nonzero(inside == np.uint32(code))))


def positions_of(update: Floats, code: int) -> Counts:
    """Where the sizes with these bits are, int64, ascending."""
    return np.flatnonzero(size_codes(update) == np.uint32(code))


def _largest(counts: Counts, rank: int) -> tuple[int, int]:
    # Bins from the largest: the first whose running sum reaches the rank.
    running = np.cumsum(counts[::-1])
    at = int(np.searchsorted(running, rank))
    before = int(running[at - 1]) if at else 0
    return counts.size - 1 - at, rank - before
