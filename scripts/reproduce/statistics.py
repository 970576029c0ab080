"""Paired comparisons over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from scripts.reproduce.arms import COMPARISONS

T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t, from 1 degree of freedom."""

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
        return cls(mean(values), T975[len(values) - 2] * stdev(values) / len(values) ** 0.5)

    def to_json(self) -> dict[str, Any]:
        """Mean and bounds."""
        bounds = None if self.half is None else [self.mean - self.half, self.mean + self.half]
        return {"mean": self.mean, "interval": bounds}


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
