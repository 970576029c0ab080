"""Paired comparisons over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, stdev
from typing import Any

from scripts.reproduce.arms import COMPARISONS

ENDPOINTS = ("kl", "p")

Record = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half the width of its 95 % interval (paired t), which is None for a single seed."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one value for each seed."""
        if len(values) < 2:
            return cls(mean(values), None)
        return cls(mean(values), t975(len(values) - 1) * stdev(values) / len(values) ** 0.5)

    def to_json(self) -> dict[str, Any]:
        """Mean and bounds."""
        bounds = None if self.half is None else [self.mean - self.half, self.mean + self.half]
        return {"mean": self.mean, "interval": bounds}


@cache
def t975(degrees: int) -> float:
    """The 97.5 % quantile of Student's t with a number of degrees of freedom, by bisection."""
    low, high = 0.0, math.pi / 2
    # The angle's tangent is t / sqrt(degrees); 60 halvings leave less than a float distinguishes.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 0.95 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(abs(T) < t) with ``tan(angle) = t / sqrt(degrees)`` (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    The sums end at the power ``degrees - 2`` of the cosine::

        odd:  2/pi (angle + sin (cos + 2/3 cos^3 + 2/3 4/5 cos^5 + ...))
        even: sin (1 + 1/2 cos^2 + 1/2 3/4 cos^4 + ...)
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = cosine if odd else 1.0, 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@dataclass(frozen=True)
class Results:
    """All runs.

    Attributes:
        source: measurements of the source.
        teacher: of the teacher.
        runs: by arm, one for each seed, in the order of seeds.
    """

    source: Record
    teacher: Record
    runs: Mapping[str, list[Record]]

    def values(self, arm: str, endpoint: str) -> list[float]:
        """An endpoint on held-out problems, for every seed."""
        return [float(run["held_out"][endpoint]) for run in self.runs[arm]]

    def average(self, arm: str, field: str) -> float:
        """Mean of a field over seeds."""
        return mean(float(run[field]) for run in self.runs[arm])

    def difference(self, first: str, second: str, endpoint: str) -> Estimate:
        """First arm minus second, paired by seed."""
        pairs = zip(self.values(first, endpoint), self.values(second, endpoint), strict=True)
        return Estimate.of([a - b for a, b in pairs])

    def share(self, arm: str) -> Estimate:
        """An arm's share of the full arm's gain in KL, paired by seed."""
        start = self.source["held_out"]["kl"]
        pairs = zip(self.values(arm, "kl"), self.values("full", "kl"), strict=True)
        return Estimate.of([(start - kl) / (start - full) if start != full else 0.0 for kl, full in pairs])

    def comparisons(self) -> list[tuple[str, str]]:
        """The planned comparisons of which both arms were run."""
        return [pair for pair in COMPARISONS if self.runs.keys() >= set(pair)]

    def gain(self) -> tuple[float, float]:
        """Mean and standard deviation over seeds of how much lower KL is in the full arm than in the source."""
        start = float(self.source["held_out"]["kl"])
        falls = [start - value for value in self.values("full", "kl")]
        return mean(falls), stdev(falls) if len(falls) > 1 else 0.0

    def learned(self) -> bool:
        """Whether the full arm beats the source by 5 paired standard deviations; else nothing was tested."""
        fall, spread = self.gain()
        return fall > 0 and fall >= 5 * spread
