"""Comparisons of arms over pairs of a mask and a training seed, with intervals that hold for other pairs.

A difference between two arms, or a share of the full arm's gain, is taken between runs of one training seed. Every
training seed has a mask of its own, so the n differences are independent, and each contains the effects of mask, seed
and the rest: the interval is Student's t with n - 1 degrees of freedom. It is exact for normal effects. For an arm with
one mask it holds for that mask only. All hold for the held-out problems as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev

from scipy.stats import t as student

from maskreg.analysis.pairwise import holm
from scripts.reproduce.arms import FULL, Family

Record = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: of all seeds.
        sd: their standard deviation; None for a single seed.
        seeds: how many.
    """

    mean: float
    sd: float | None = None
    seeds: int = 1

    @classmethod
    def of(cls, values: Mapping[int, float]) -> Estimate:
        """From values by seed."""
        return cls(mean(values.values()), stdev(values.values()) if len(values) > 1 else None, len(values))

    @property
    def half(self) -> float | None:
        """Half the width of the 95 % interval."""
        if self.sd is None:
            return None
        return float(student.ppf(0.975, self.seeds - 1)) * self.sd / math.sqrt(self.seeds)

    @property
    def p(self) -> float | None:
        """Two-sided p-value of a mean of 0."""
        if not self.sd:
            return None
        return 2 * float(student.sf(abs(self.mean) / self.sd * self.seeds**0.5, self.seeds - 1))


@dataclass(frozen=True)
class Results:
    """All runs of a family.

    Attributes:
        start: figures of the checkpoint that they start from.
        runs: figures by arm and training seed.
    """

    family: Family
    start: Record
    runs: Mapping[str, Mapping[int, Record]]

    def values(self, arm: str, field: str) -> dict[int, float]:
        """A figure by seed."""
        return {seed: run[field] for seed, run in self.runs[arm].items()}

    def average(self, arm: str, field: str) -> float:
        """Mean of a figure over seeds."""
        return mean(self.values(arm, field).values())

    def shares(self, arm: str) -> dict[int, float]:
        """By seed, the share of the full arm's gain in the primary endpoint, in percent."""
        endpoint = self.family.endpoint
        start, full = self.start[endpoint], self.values(FULL, endpoint)
        return {
            seed: 100 * (value - start) / (full[seed] - start) for seed, value in self.values(arm, endpoint).items()
        }

    def difference(self, first: str, second: str) -> tuple[Estimate, Estimate]:
        """First arm minus second: in the primary endpoint, and in the share of the full arm's gain."""
        endpoint = self.family.endpoint
        sides = (self.values(first, endpoint), self.values(second, endpoint)), (self.shares(first), self.shares(second))
        one, other = ({seed: a[seed] - b[seed] for seed in a.keys() & b.keys()} for a, b in sides)
        return Estimate.of(one), Estimate.of(other)

    def gain(self) -> Estimate:
        """How much the full arm changes the primary endpoint."""
        endpoint = self.family.endpoint
        return Estimate.of({seed: v - self.start[endpoint] for seed, v in self.values(FULL, endpoint).items()})

    def learned(self) -> bool:
        """Whether the full arm beats the start by 5 paired standard deviations; else nothing was tested."""
        gain = self.gain()
        return (gain.mean if self.family.endpoint == "p" else -gain.mean) > 5 * (gain.sd or 0.0)


@dataclass(frozen=True)
class Comparison:
    """First arm minus second; ``corrected`` is its p-value, corrected for all comparisons of all families."""

    first: str
    second: str
    difference: Estimate
    share: Estimate
    corrected: float | None


def comparisons(results: Mapping[str, Results]) -> dict[str, list[Comparison]]:
    """The planned comparisons by family."""
    planned = [(name, *pair) for name, one in results.items() for pair in one.family.comparisons()]
    found = [results[name].difference(first, second) for name, first, second in planned]
    chances = holm([difference.p for difference, _ in found], len(found))
    made: dict[str, list[Comparison]] = {name: [] for name in results}
    for (name, first, second), (difference, share), p in zip(planned, found, chances, strict=True):
        made[name].append(Comparison(first, second, difference, share, p))
    return made
