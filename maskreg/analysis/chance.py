"""The overlap that chance alone produces: expectations under null models, and odds ratios within strata.

Every quantity is a sum over strata (a tensor, or a class of source codes within a tensor), so the figures of a model
are sums over its tensors. Notation: a stratum has n coordinates, a of them in mask A, b in mask B.

Example: two masks both take the same 50 of 100 coordinates, where uniform masks would share 50 * 50 / 100 = 25. If
those 50 are one class of codes and the rest another, masks matched by class are expected to share 50 * 50 / 50 + 0 =
50: the classes explain the whole overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import OverlapCounts, Sums, odds

Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expectation:
    """The overlap that a null model expects, and its variance; additive over disjoint sets of coordinates.

    ``expected`` is None where the null is undefined, for a ``reason``.
    """

    expected: float | None = 0.0
    variance: float = 0.0
    reason: str = ""

    def __add__(self, other: Expectation) -> Expectation:
        if self.expected is None or other.expected is None:
            return self if self.expected is None else other
        return Expectation(self.expected + other.expected, self.variance + other.variance)


@dataclass(frozen=True)
class OddsSums(Sums):
    """Both sums of a Mantel-Haenszel odds ratio.

    Attributes:
        concordant: both * neither / n, summed over strata.
        discordant: A only * B only / n, summed over strata.
    """

    concordant: float = 0.0
    discordant: float = 0.0

    @property
    def ratio(self) -> float | None:
        """The odds ratio; infinite where no stratum has coordinates in A only and others in B only."""
        return odds(self.concordant, self.discordant)


def expect_uniform(counts: OverlapCounts) -> Expectation:
    """One mask redrawn with as many coordinates, anywhere: pqN, with the hypergeometric variance."""
    return expect_matched(one_stratum(counts))


def expect_matched(cells: Cells) -> Expectation:
    """One mask redrawn with as many coordinates in each stratum, anywhere in it.

    The overlap of a stratum is hypergeometric: mean ab / n, variance ab (n - a)(n - b) / (n^2 (n - 1)). Example: n = 4,
    a = b = 2 share 0, 1 or 2 coordinates with chances 1/6, 4/6, 1/6: mean 1, variance 1/3. Cells are int64 ``[k, 4]``,
    a 2x2 table (neither, A only, B only, both) for each stratum.
    """
    n, a, b = sizes_of(cells)
    expected = a * b / n
    variance = expected * (n - a) * (n - b) / (n * np.maximum(n - 1, 1))
    return Expectation(float(expected.sum()), float(variance.sum()))


def odds_sums(cells: Cells) -> OddsSums:
    """Both sums of the Mantel-Haenszel odds ratio over strata (J. Natl. Cancer Inst. 22, 1959).

    Example, strata (neither, A only, B only, both) = (40, 10, 10, 40) and (4, 1, 1, 4): concordant 1600/100 + 16/10 =
    17.6, discordant 100/100 + 1/10 = 1.1, odds ratio 16, as in each of them.
    """
    n, (neither, only_a, only_b, both) = sizes_of(cells)[0], cells.T.astype(np.float64)
    return OddsSums(float((both * neither / n).sum()), float((only_a * only_b / n).sum()))


def expect_rounding(cells: Cells, a: Floats | None, b: Floats | None) -> Expectation:
    """One or both masks of a tensor redrawn as rounding alone would make them, with as many coordinates as they have.

    Coordinates flip independently, each with the chance of its class; what is random is which. Expected are n P_A P_B
    of a class of n coordinates with both masks redrawn, |B| P_A with A alone. As the number of flips is fixed, the
    variance is what remains of the independent one after the regression on that number::

        var(sum x y) - cov(sum x y, sum x)^2 / var(sum x) - the same of y

    Example: n = 4, P = 1/2 in both, one class, two flips in each: 4 (1/4)(3/4) - 2 (4 (1/2)(1/4))^2 / 1 = 1/4, where
    the hypergeometric variance is 1/3: they agree to 1/n.

    Args:
        cells: int64 ``[k, 4]``, the tensor's 2x2 tables by class.
        a: chances of A by class, from :func:`maskreg.mask.rounding.fit_flips`; None keeps A as it is.
        b: chances of B by class; not both None.
    """
    n, in_a, in_b = sizes_of(cells)
    if a is not None and b is not None:
        expected = n * a * b
        variance = (expected * (1 - a * b)).sum()
        variance -= _explained(n, a, b) + _explained(n, b, a)
    elif a is not None:
        expected = in_b * a
        variance = (expected * (1 - a)).sum() - _explained(n, a, in_b / n)
    elif b is not None:
        expected = in_a * b
        variance = (expected * (1 - b)).sum() - _explained(n, b, in_a / n)
    else:
        raise ValueError("neither mask is redrawn")
    return Expectation(float(expected.sum()), max(float(variance), 0.0))


def sizes_of(cells: Cells) -> tuple[Floats, Floats, Floats]:
    """Coordinates of each stratum, 1 for none; those in A; and those in B: float64 ``[k]`` each."""
    _, only_a, only_b, both = counts = cells.T.astype(np.float64)
    return np.maximum(counts.sum(0), 1), only_a + both, only_b + both


def _explained(n: Floats, drawn: Floats, other: Floats) -> float:
    """Variance of the overlap that the number of flips of one mask explains."""
    own = n * drawn * (1 - drawn)
    return float((own * other).sum() ** 2 / total) if (total := float(own.sum())) > 0 else 0.0


def one_stratum(counts: OverlapCounts) -> Cells:
    """Counts as a single stratum, int64 ``[1, 4]``: neither, A only, B only, both."""
    return np.array([[counts.neither, counts.a - counts.both, counts.b - counts.both, counts.both]], np.int64)
