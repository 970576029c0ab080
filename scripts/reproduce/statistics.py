"""Paired comparisons over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from scripts.reproduce.arms import CONTRASTS

T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t, from 1 degree of freedom."""

ENDPOINTS = ("kl", "p")

Record = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (paired t); half is None for a single seed."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one value a seed."""
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
        """Of every seed, on held-out problems."""
        return [float(run["held_out"][endpoint]) for run in self.runs[arm]]

    def average(self, arm: str, field: str) -> float:
        """Mean over seeds."""
        return mean(float(run[field]) for run in self.runs[arm])

    def difference(self, arm: str, other: str, endpoint: str) -> Estimate:
        """First minus second, paired by seed."""
        pairs = zip(self.values(arm, endpoint), self.values(other, endpoint), strict=True)
        return Estimate.of([one - two for one, two in pairs])

    def share(self, arm: str) -> Estimate:
        """Of the full arm's fall of KL, paired by seed."""
        start = self.source["held_out"]["kl"]
        pairs = zip(self.values(arm, "kl"), self.values("full", "kl"), strict=True)
        return Estimate.of([(start - one) / (start - full) if start != full else 0.0 for one, full in pairs])

    def contrasts(self) -> list[tuple[str, str]]:
        """Those of which both arms were run."""
        return [(one, two) for one, two in CONTRASTS if one in self.runs and two in self.runs]

    def gain(self) -> tuple[float, float]:
        """Mean and standard deviation over seeds of the fall of KL from the source to the full arm."""
        start = float(self.source["held_out"]["kl"])
        falls = [start - value for value in self.values("full", "kl")]
        return mean(falls), stdev(falls) if len(falls) > 1 else 0.0

    def learnt(self) -> bool:
        """Whether the full arm beats the source by 5 paired standard deviations, without which nothing was tested."""
        fall, spread = self.gain()
        return fall > 0 and fall >= 5 * spread
