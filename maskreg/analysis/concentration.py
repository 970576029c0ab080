"""How much of an update's energy lies in the few coordinates that moved farthest: exact, without a sort.

Source: "Dense Supervision, Sparse Updates" (arXiv 2606.13657), whose code takes the share of ``sum dW^2`` in the
largest .1, 1 and 5 % of the entries of every tensor, and pools tensors by energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Blocks = Callable[[], Iterable[Floats]]
"""Gives the blocks of an update, any number of times."""

SHARES = (0.001, 0.01, 0.05)
"""Shares of a tensor's coordinates whose energy is given."""

_HALF = 1 << 16  # values of the upper or lower 16 bits of an fp32 number


def count_of(share: float, numel: int) -> int:
    """Coordinates in a share of a tensor: ``ceil(share * numel)``, at most all.

    Rounding to six digits first keeps float error from adding one: .07 * 100 is 7.000000000000001.
    """
    return min(numel, math.ceil(round(share * numel, 6)))


def label(share: float) -> str:
    """The figure's name: ``concentration_0.1pct``."""
    return f"concentration_{100 * share:g}pct"


def top_energies(blocks: Blocks, numel: int, shares: Sequence[float] = SHARES) -> dict[str, float]:
    """Energy of a finite update in the :func:`count_of` coordinates of largest magnitude, for each share, by label.

    Magnitudes are compared as fp32 numbers, which differences of bf16 numbers are unless their exponents are more than
    15 apart. Like radix sort, by a histogram of the upper 16 bits, and one of the lower 16 bits of the border's class::

        count and energy of every class of upper bits
        from the top: whole classes while they fit;  the class that does not fit is the border
        second pass, of the border alone: the same by lower bits, of which the class that does not fit is one magnitude

    Of that magnitude as many coordinates count as fit. Which of them is no question: they have one energy. Memory is
    two histograms for a tensor of any size.
    """
    upper = _Histogram.of((_bits(block) >> np.uint32(16), block) for block in blocks())
    borders = [upper.border(count_of(share, numel)) for share in shares]
    classes = sorted({border.key for border in borders if border.missing})
    lower = {key: _Histogram.of(_of_class(block, key) for block in blocks()) for key in classes}
    return {
        label(share): border.energy + (lower[border.key].largest(border.missing) if border.missing else 0.0)
        for share, border in zip(shares, borders, strict=True)
    }


class _Border(NamedTuple):
    """Where a number of coordinates is reached: energy of whole classes, the next class, and how many it lacks."""

    energy: float
    key: int
    missing: int


class _Histogram(NamedTuple):
    """Coordinates and energy by class; the last class holds the largest magnitudes."""

    counts: npt.NDArray[np.int64]
    energies: Floats

    @classmethod
    def of(cls, keyed: Iterable[tuple[npt.NDArray[np.uint32], Floats]]) -> _Histogram:
        counts, energies = np.zeros(_HALF, np.int64), np.zeros(_HALF)
        for keys, values in keyed:
            counts += np.bincount(keys, minlength=_HALF)
            energies += np.bincount(keys, np.square(values), minlength=_HALF)
        return cls(counts, energies)

    def border(self, count: int) -> _Border:
        down = np.cumsum(self.counts[::-1])
        whole = int(np.searchsorted(down, count, "right"))
        missing = count - (int(down[whole - 1]) if whole else 0)
        return _Border(float(self.energies[::-1][:whole].sum()), _HALF - 1 - whole, missing)

    def largest(self, count: int) -> float:
        energy, key, missing = self.border(count)
        return energy + (missing * float(self.energies[key] / self.counts[key]) if missing else 0.0)


def _bits(values: Floats) -> npt.NDArray[np.uint32]:
    return np.abs(values).astype(np.float32).view(np.uint32)


def _of_class(values: Floats, key: int) -> tuple[npt.NDArray[np.uint32], Floats]:
    bits = _bits(values)
    chosen = bits >> np.uint32(16) == key
    return bits[chosen] & np.uint32(_HALF - 1), values[chosen]
