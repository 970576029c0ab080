"""The smallest magnitudes of a tensor, an exact number of them; among equal ones, the first.

bf16 has 32,768 magnitudes, so counting replaces sorting: a histogram gives the magnitude at which the number is reached
(the border), and how many coordinates of just that magnitude still belong to it (the ties). A second pass finds the
coordinate after the last of these (the cut).

    magnitudes 3 1 4 1 5 1, two of them: border 1, ties 2, cut 4: coordinates 1 and 3
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import pack, packed_bytes
from maskreg.native import library

MAGNITUDES = 1 << 15
"""Magnitudes of bf16 codes; infinities and NaNs are the largest."""

_MAGNITUDE = np.uint16(MAGNITUDES - 1)

Codes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]


class Smallest(NamedTuple):
    """Which coordinates of a tensor have the smallest magnitudes.

    Attributes:
        border: smaller magnitudes are taken.
        ties: how many of magnitude ``border`` are taken, the first ones.
        cut: those of magnitude ``border`` are taken before this coordinate.
    """

    border: int
    ties: int
    cut: int = 0

    def packed(self, first: int, codes: Codes) -> npt.NDArray[np.uint8]:
        """Packed bits of the coordinates that are taken in a span.

        Args:
            first: the span's first coordinate.
            codes: bf16 codes, uint16 ``[n]``.
        """
        ties = max(self.cut - first, 0)
        if compiled := library():
            packed = np.empty(packed_bytes(codes.size), np.uint8)
            compiled.lib.maskreg_pack_smallest(
                compiled.read(codes), codes.size, self.border, ties, compiled.write(packed)
            )
            return packed
        magnitudes = codes & _MAGNITUDE
        taken = magnitudes < self.border
        taken[:ties] |= magnitudes[:ties] == self.border
        return pack(taken)


def count_magnitudes(codes: Codes, counts: Counts) -> None:
    """Count coordinates by magnitude.

    Args:
        codes: bf16 codes, uint16 ``[n]``.
        counts: int64 ``[32768]``, added to.
    """
    if compiled := library():
        compiled.lib.maskreg_count_magnitudes(compiled.read(codes), codes.size, compiled.write(counts))
        return
    counts += np.bincount(codes & _MAGNITUDE, minlength=counts.size)


def smallest(counts: Counts, size: int) -> Smallest:
    """Border and ties for the ``size`` smallest of the coordinates that were counted; the cut is still 0."""
    upto = np.cumsum(counts)
    border = int(np.searchsorted(upto, size, side="right"))
    return Smallest(border, size - (int(upto[border - 1]) if border else 0))


def places_of(codes: Codes, magnitude: int) -> Counts:
    """Coordinates of a magnitude in a span, int64, ascending."""
    return np.flatnonzero((codes & _MAGNITUDE) == magnitude)
