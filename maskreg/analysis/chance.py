"""What chance makes of the overlap of two masks: expectations under nulls, and odds given what is known of a weight.

Every quantity is a sum over strata (a tensor, or a class of source codes in a tensor), so what is said of a model is
the sum of what is said of its tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import Table, ratio
from maskreg.mask.rounding import fit_scale, flip_chances

Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Chance:
    """The overlap that a null expects; the sum of two is that of their coordinates together.

    Attributes:
        expected: coordinates in both masks; None where the null is undefined.
        variance: of that number, under the null.
        reason: why it is undefined; empty where it is not.
    """

    expected: float | None = 0.0
    variance: float = 0.0
    reason: str = ""

    def __add__(self, other: Chance) -> Chance:
        if self.expected is None or other.expected is None:
            return self if self.expected is None else other
        return Chance(self.expected + other.expected, self.variance + other.variance)


@dataclass(frozen=True)
class Odds:
    """Sums of a Mantel-Haenszel odds ratio: over strata of n, both * neither / n, and A only * B only / n."""

    alike: float = 0.0
    apart: float = 0.0

    def __add__(self, other: Odds) -> Odds:
        return Odds(self.alike + other.alike, self.apart + other.apart)

    @property
    def ratio(self) -> float | None:
        """The odds ratio; None where no stratum has coordinates in A only and others in B only."""
        return ratio(self.alike, self.apart)


@dataclass(frozen=True)
class Beside:
    """An observed overlap beside what a null expects; all None where the null is undefined.

    Attributes:
        expected: coordinates in both masks.
        lift: the same as lift over uniform random: expected * N / (|A| |B|).
        ratio: observed / expected.
        headroom: (observed - expected) / (the most that masks of these sizes can share - expected).
        sd: standard deviation of the overlap under the null, in coordinates.
        deviations: (observed - expected) / sd.
        reason: why the null is undefined; empty where it is not.
    """

    expected: float | None = None
    lift: float | None = None
    ratio: float | None = None
    headroom: float | None = None
    sd: float | None = None
    deviations: float | None = None
    reason: str = ""


def beside(table: Table, chance: Chance) -> Beside:
    """Put an observed overlap beside what a null expects."""
    if chance.expected is None:
        return Beside(reason=chance.reason)
    over, sd = table.both - chance.expected, math.sqrt(chance.variance)
    room = table.most - chance.expected
    # Where chance alone reaches the most, the two differ by no more than what sums of floats lose.
    open_room = room if room > 1e-9 * table.most else 0.0
    return Beside(
        expected=chance.expected,
        lift=ratio(chance.expected * table.numel, table.a * table.b),
        ratio=ratio(table.both, chance.expected),
        headroom=ratio(over, open_room),
        sd=sd,
        deviations=ratio(over, sd),
    )


def uniform(table: Table) -> Chance:
    """One of the masks redrawn with as many coordinates, anywhere: pqN, with the hypergeometric variance."""
    return matched(one_stratum(table))


def matched(cells: Cells) -> Chance:
    """One of the masks redrawn with as many coordinates in each stratum, anywhere in it.

    Args:
        cells: int64 ``[k, 4]``, a 2x2 table (neither, A only, B only, both) for each stratum.

    Returns:
        The sum over strata of ab / n, with the hypergeometric variance ab (n - a)(n - b) / (n^2 (n - 1)).
    """
    n, a, b = _margins(cells)
    expected = a * b / n
    variance = expected * (n - a) * (n - b) / (n * np.maximum(n - 1, 1))
    return Chance(float(expected.sum()), float(variance.sum()))


def odds(cells: Cells) -> Odds:
    """Sums of the Mantel-Haenszel odds ratio over strata.

    Args:
        cells: int64 ``[k, 4]``, as for :func:`matched`.
    """
    full = cells[cells.sum(1) > 0].astype(np.float64)
    n = full.sum(1)
    return Odds(float((full[:, 3] * full[:, 0] / n).sum()), float((full[:, 1] * full[:, 2] / n).sum()))


def flips(members: Cells, nnz: int) -> Floats:
    """Chance of each class to be in a mask that rounding alone made of one tensor.

    Noise of one scale for the whole tensor, see :mod:`maskreg.mask.rounding`; between the two scales whose chances sum
    to less than ``nnz`` and to no less, on a line. A mask of none or all of a tensor says nothing of a scale, and is
    what it is.

    Args:
        members: int64 ``[512]``, coordinates of the tensor by class.
        nnz: how many of them are in the mask.

    Returns:
        float64 ``[512]``.

    Raises:
        ValueError: no noise makes so many coordinates flip.
    """
    if nnz in (0, int(members.sum())):
        return np.full(members.size, float(nnz > 0))
    scale = fit_scale(members, nnz)
    below, above = flip_chances(scale - 1), flip_chances(scale)
    fewer, more = float(members @ below), float(members @ above)
    chances: Floats = below + (above - below) * ((nnz - fewer) / (more - fewer))
    return chances


def rounding(cells: Cells, a: Floats | None, b: Floats | None) -> Chance:
    """A mask, or both, redrawn as rounding alone would make it of one tensor.

    Coordinates flip one by one; that their number is fixed would make the spread a little smaller.

    Args:
        cells: int64 ``[512, 4]``, the tensor's 2x2 tables by class.
        a: chances of A by class, as :func:`flips` gives them; None keeps A as it is.
        b: likewise B's; not both None.
    """
    n, in_a, in_b = cells.sum(1), cells[:, 1] + cells[:, 3], cells[:, 2] + cells[:, 3]
    if a is not None and b is not None:
        trials, chance = n, a * b
    elif a is not None:
        trials, chance = in_b, a
    elif b is not None:
        trials, chance = in_a, b
    else:
        raise ValueError("neither mask is redrawn")
    expected = trials * chance
    return Chance(float(expected.sum()), float((expected * (1 - chance)).sum()))


def one_stratum(table: Table) -> Cells:
    """A table as a single stratum, int64 ``[1, 4]``: neither, A only, B only, both."""
    return np.array([[table.neither, table.a - table.both, table.b - table.both, table.both]], np.int64)


def _margins(cells: Cells) -> tuple[Floats, Floats, Floats]:
    full = cells[cells.sum(1) > 0].astype(np.float64)
    return full.sum(1), full[:, 1] + full[:, 3], full[:, 2] + full[:, 3]
