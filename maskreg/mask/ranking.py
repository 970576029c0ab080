"""The smallest magnitudes of a tensor, exactly as many as wanted: equal ones in the order of their places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.mask.packed import pack

MAGNITUDES = 1 << 15
"""How many magnitudes bf16 codes have; infinities and NaNs are the largest."""

_MAGNITUDE = np.uint16(MAGNITUDES - 1)

Codes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]


class Smallest(NamedTuple):
    """Which coordinates of a tensor have the smallest magnitudes.

    Attributes:
        border: those below are taken.
        ties: how many of those equal to it are taken, the first ones.
        cut: those equal to it are taken at places before this one.
    """

    border: int
    ties: int
    cut: int = 0

    def packed(self, first: int, codes: Codes) -> npt.NDArray[np.uint8]:
        """Packed bits of the coordinates that are taken in a run.

        Args:
            first: the run's first coordinate.
            codes: bf16 codes, uint16 ``[n]``.
        """
        magnitudes = codes & _MAGNITUDE
        taken = magnitudes < self.border
        ties = max(self.cut - first, 0)
        taken[:ties] |= magnitudes[:ties] == self.border
        return pack(taken)


def count_magnitudes(codes: Codes, counts: Counts) -> None:
    """Add up coordinates by magnitude.

    Args:
        codes: bf16 codes, uint16 ``[n]``.
        counts: int64 ``[32768]``, added to.
    """
    _count(codes, counts)


def smallest(counts: Counts, wanted: int) -> Smallest:
    """Border and number of ties for ``wanted`` of the coordinates counted; the cut is left to be found."""
    upto = np.cumsum(counts)
    border = int(np.searchsorted(upto, wanted, side="right"))
    return Smallest(border, wanted - (int(upto[border - 1]) if border else 0))


def places_of(codes: Codes, magnitude: int) -> Counts:
    """Where in a run a magnitude is, int64, in order."""
    return np.flatnonzero((codes & _MAGNITUDE) == magnitude)


@kernel
def _count(codes: Codes, counts: Counts) -> None:
    for i in range(codes.size):
        counts[np.uint32(codes[i] & _MAGNITUDE)] += 1
