"""An observed overlap beside what a null expects: the size of the difference, its interval, and how rare it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.chance import Expectation
from maskreg.analysis.clusters import NUMEL, OBSERVED, SIZE_A, SIZE_B, Covariances
from maskreg.analysis.overlap import OverlapCounts, ratio

# How rare an overlap is under a null, exactly where counts are small.
#
# Within a stratum of n coordinates, a of them in A and b in B, the overlap is hypergeometric; over strata it is their
# sum, whose distribution is the convolution. It is kept where it is short; elsewhere the normal distribution is close.
#
# Example: 1 and 2 of a million coordinates share one with the chance 2e-6. It is rare, and still no evidence:
# one coordinate is an anecdote (:mod:`maskreg.analysis.verdict`).

Floats = npt.NDArray[np.float64]

LONGEST = 1 << 10
"""Numbers of shared coordinates whose chances are kept."""

_SMALL_MEAN = 64.0
"""Strata that expect more than this above the least are far from rare events, and the whole is nearly normal."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """Distribution of the overlap of two masks under a null; adds up over independent groups of coordinates.

    Chances are of ``least``, ``least + 1``, ... shared coordinates; None where there are too many.
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
    """Distribution of the overlap with a mask that is redrawn with as many coordinates in every stratum."""
    n, a, b = cells.sum(1), cells[:, 1] + cells[:, 3], cells[:, 2] + cells[:, 3]
    if (np.minimum(1.0 * a * b, 1.0 * (n - a) * (n - b)) > _SMALL_MEAN * n).any():
        return Distribution()
    result = CERTAIN
    for table in zip(n[n > 0].tolist(), a[n > 0].tolist(), b[n > 0].tolist(), strict=True):
        result += _hypergeometric(*table)
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


Z95 = 1.959963984540054
"""Standard errors on each side of a figure that a 95 % interval covers."""

FEWEST = 10
"""Coordinates below which an overlap is an anecdote, however unlikely, and has no interval."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Excess:
    """An observed overlap against a null model's expectation; the glossary defines the figures.

    All are None where the null is undefined, for a ``reason``. Intervals are of 95 %, and None where fewer than
    ``FEWEST`` coordinates are expected and shared. ``sd`` is for independent coordinates, ``standard_error`` if rows
    and columns can move together; ``deviations`` are over the latter where there is one.
    """

    expected: float | None = None
    lift: float | None = None
    ratio: float | None = None
    ratio_interval: Interval | None = None
    headroom: float | None = None
    headroom_interval: Interval | None = None
    sd: float | None = None
    standard_error: float | None = None
    deviations: float | None = None
    chance_of_more: float | None = None
    chance_of_less: float | None = None
    reason: str = ""


def excess_of(
    counts: OverlapCounts,
    null: Expectation,
    spread: Covariances | None = None,
    name: str = "",
    exact: Distribution | None = None,
) -> Excess:
    """Measure an observed overlap against a null model's expectation.

    Example: 20 shared of N = 100, |A| = 40, |B| = 30, with 12 expected and variance 4: lift of the null 1, ratio 1.67,
    headroom (20 - 12) / (30 - 12) = 44 %, 4 standard deviations.

    Args:
        counts: the 2x2 table.
        null: what it expects.
        spread: covariances of the sums, among them the null's expectation; None leaves out intervals.
        name: of the null in ``spread``.
        exact: the distribution under the null, where counts are small.
    """
    if null.expected is None:
        return Excess(reason=null.reason)
    expected, difference, sd = null.expected, counts.both - null.expected, math.sqrt(null.variance)
    if max(expected, counts.both) < FEWEST:
        spread = None
    bound, slopes = _bound(counts, difference)
    # A null that already expects the bound leaves no room; what remains is the rounding error of float sums.
    room = bound - expected if abs(bound - expected) > 1e-9 * counts.most else 0.0
    headroom = ratio(difference, abs(room))
    error = spread.sd({OBSERVED: 1.0, name: -1.0}) if spread else None
    deviations = ratio(difference, sd if error is None else max(error, sd))
    more, less = _chances(counts.both, deviations, difference, exact)
    relative = ratio(counts.both, expected)
    return Excess(
        expected=expected,
        lift=ratio(expected * counts.numel, counts.a * counts.b),
        ratio=relative,
        ratio_interval=_interval(
            relative,
            spread.sd({OBSERVED: 1 / expected, name: -(relative or 0.0) / expected}) if spread and expected else None,
        ),
        headroom=headroom,
        headroom_interval=_interval(
            headroom, spread.sd(_headroom_slopes(headroom or 0.0, room, slopes, name)) if spread and room else None
        ),
        sd=sd,
        standard_error=error,
        deviations=deviations,
        chance_of_more=more,
        chance_of_less=less,
    )


def _bound(counts: OverlapCounts, difference: float) -> tuple[int, dict[str, float]]:
    """The overlap that a headroom of 1, or of -1, would be; and its derivatives by the sums."""
    if difference >= 0:
        return counts.most, {SIZE_A if counts.a < counts.b else SIZE_B: 1.0}
    least = max(0, counts.a + counts.b - counts.numel)
    return least, {SIZE_A: 1.0, SIZE_B: 1.0, NUMEL: -1.0} if least else {}


def _headroom_slopes(headroom: float, room: float, slopes: Mapping[str, float], name: str) -> dict[str, float]:
    # h = (i - E) / |M - E|; with r = |M - E|, dh = (di - dE - |h| (dM - dE)) / r, signs as they fall for both bounds.
    share = abs(headroom)
    return {
        OBSERVED: 1 / abs(room),
        name: (share - 1) / abs(room),
        **{size: -share * slope / abs(room) for size, slope in slopes.items()},
    }


def _interval(value: float | None, error: float | None) -> Interval | None:
    return None if value is None or error is None else (value - Z95 * error, value + Z95 * error)


def _chances(
    both: int, deviations: float | None, difference: float, exact: Distribution | None
) -> tuple[float | None, float | None]:
    if exact is not None and (more := exact.at_least(both)) is not None:
        # Where coordinates are few, and rows and columns move together, the wider of both.
        wide = _upper(deviations), _upper(-deviations if deviations is not None else None)
        less = exact.at_most(both) or 0.0
        return max(more, wide[0] or 0.0), max(less, wide[1] or 0.0)
    if deviations is None:
        return (None, None) if not difference else (float(difference < 0), float(difference > 0))
    return _upper(deviations), _upper(-deviations)


def _upper(deviations: float | None) -> float | None:
    return None if deviations is None else math.erfc(deviations / math.sqrt(2)) / 2
