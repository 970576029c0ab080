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

Codes = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]

_END = 1 << 62
# End of a threshold that all of its size are above.
NOTHING = Threshold(0xFFFFFFFF, 0)
EVERYTHING = Threshold(0, _END)


@dataclass
class Search:
    """The search for one threshold: above it are ``missing`` of an order's sizes, in the end of equal sizes alone.

    Attributes:
        order: which of the orders: the update of an artifact, or the spread over all.
        missing: how many of the sizes that are left are above the threshold.
        found: the threshold, once it is known.
        upper: upper bits of the size at the threshold, once upper bits are counted.
        code: all of its bits, once lower bits are counted.
    """

    order: int
    missing: int
    found: Threshold | None = None
    upper: int = 0
    code: int = 0

    @classmethod
    def begin(cls, order: int, rank: int, counts: Counts, numel: int) -> Search:
        """Search for the threshold above which ``rank`` of ``numel`` sizes are, given their counts by upper bits."""
        if not 0 < rank < numel:
            return cls(order, rank, EVERYTHING if rank > 0 else NOTHING)
        upper, missing = _largest(counts, rank)
        return cls(order, missing, upper=upper)

    def narrow(self, counts: Counts) -> None:
        """Take the counts of lower bits among sizes with these upper bits, without zeros."""
        if self.missing > counts.sum():
            self.found = EVERYTHING
            return
        lower, self.missing = _largest(counts, self.missing)
        self.code = self.upper << 16 | lower
        if self.missing == counts[lower]:
            self.found = Threshold(self.code, _END)

    def narrow_to(self, codes: Sequence[Codes]) -> None:
        """The same, given all sizes with these upper bits, without zeros."""
        inside = np.concatenate(codes)
        if self.missing > inside.size:
            self.found = EVERYTHING
            return
        at = inside.size - self.missing
        self.code = int(np.partition(inside, at)[at])
        self.missing -= int(np.count_nonzero(inside > np.uint32(self.code)))
        if self.missing == np.count_nonzero(inside == np.uint32(self.code)):
            self.found = Threshold(self.code, _END)

    def place(self, positions: Counts) -> None:
        """Take the next positions of sizes that equal the one at the threshold, ascending."""
        if self.found is None and self.missing <= positions.size:
            self.found = Threshold(self.code, int(positions[self.missing - 1]) + 1)
        self.missing -= positions.size

    @property
    def threshold(self) -> Threshold:
        """What was found; where equal sizes were not placed, all of them are above."""
        return self.found or Threshold(self.code, _END)


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


def count_upper(update: Floats, counts: Counts) -> None:
    """Add a tile to the counts of upper bits, int64 ``[2^15]``."""
    counts += np.bincount(size_codes(update) >> np.uint32(16), minlength=UPPER)


def count_lower(update: Floats, upper: int, counts: Counts) -> None:
    """Add a tile to the counts of lower bits among sizes with these upper bits, int64 ``[2^16]``; no zeros."""
    inside = codes_inside(update, upper)
    if inside.size:
        counts += np.bincount(inside & np.uint32(0xFFFF), minlength=LOWER)


def codes_inside(update: Floats, upper: int) -> Codes:
    """Bits of the sizes with these upper bits, without zeros."""
    codes = size_codes(update)
    chosen = codes >> np.uint32(16) == np.uint32(upper)
    if not upper:
        chosen &= codes != 0
    inside: Codes = codes[chosen]
    return inside


def positions_of(update: Floats, code: int) -> Counts:
    """Where the sizes with these bits are, int64, ascending."""
    return np.flatnonzero(size_codes(update) == np.uint32(code))


def _largest(counts: Counts, rank: int) -> tuple[int, int]:
    # Bins from the largest: the first whose running sum reaches the rank.
    running = np.cumsum(counts[::-1])
    at = int(np.searchsorted(running, rank))
    before = int(running[at - 1]) if at else 0
    return counts.size - 1 - at, rank - before
