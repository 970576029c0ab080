"""How rare an overlap is under a null, exactly where counts are small.

Within a stratum of n coordinates, a of them in A and b in B, the overlap is hypergeometric; over strata it is their
sum, whose distribution is the convolution. It is kept where it is short; elsewhere the normal distribution is close.

Example: 1 and 2 of a million coordinates share one with the chance 2e-6. It is rare, and no evidence all the same: one
coordinate is an anecdote (:mod:`maskreg.analysis.verdict`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LONGEST = 1 << 10
"""Numbers of shared coordinates whose chances are kept."""

_SMALL_MEAN = 64.0
"""Strata that expect more than this above the least are far from rare events, and the whole is nearly normal."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """Distribution of the overlap of two masks under a null; adds up over independent groups of coordinates.

    Attributes:
        least: the smallest overlap.
        chances: float64, of ``least``, ``least + 1``, ... shared coordinates; None where there are too many.
    """

    least: int = 0
    chances: Floats | None = None

    def __add__(self, other: Distribution) -> Distribution:
        if self.chances is None or other.chances is None or self.chances.size + other.chances.size > LONGEST:
            return Distribution()
        return Distribution(self.least + other.least, np.convolve(self.chances, other.chances))

    def at_least(self, count: int) -> float | None:
        """Chance to share ``count`` coordinates or more; None where it is not known exactly."""
        if self.chances is None:
            return None
        return float(min(1.0, self.chances[max(count - self.least, 0) :].sum()))

    def at_most(self, count: int) -> float | None:
        """Chance to share ``count`` coordinates or fewer; None where it is not known exactly."""
        if self.chances is None:
            return None
        return float(min(1.0, self.chances[: max(count - self.least + 1, 0)].sum()))


CERTAIN = Distribution(0, np.ones(1))
"""No coordinates: none are shared."""


def distribution_of(cells: npt.NDArray[np.int64]) -> Distribution:
    """Distribution of the overlap with a mask that is redrawn with as many coordinates in every stratum.

    Args:
        cells: int64 ``[k, 4]``, a 2x2 table (neither, A only, B only, both) for each stratum.
    """
    result = CERTAIN
    for neither, only_a, only_b, both in cells[cells.sum(1) > 0].tolist():
        n, a, b = neither + only_a + only_b + both, only_a + both, only_b + both
        if min(a * b, (n - a) * (n - b)) / n > _SMALL_MEAN:
            return Distribution()
        result += _hypergeometric(n, a, b)
        if result.chances is None:
            return result
    return result


def _hypergeometric(n: int, a: int, b: int) -> Distribution:
    least, most = max(0, a + b - n), min(a, b)
    # From each number to the next the chance changes by (a - k)(b - k) / ((k + 1)(n - a - b + k + 1)).
    k = np.arange(least, min(most, least + LONGEST // 2), dtype=np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log((a - k) * (b - k) / ((k + 1) * (n - a - b + k + 1))))])
    chances = np.exp(logs - logs.max())
    return Distribution(least, chances / chances.sum())
