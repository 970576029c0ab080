"""Comparisons of arms over masks and training seeds, with intervals that hold for other masks and seeds.

A difference between two arms, or a share of the full arm's gain, is taken between runs of one mask and one training
seed. Every mask has a training seed of its own, so the n differences are independent, and each contains the effects of
mask, seed and the rest: the interval is Student's t with n - 1 degrees of freedom. It is exact for normal effects. With
one mask it is the paired t over training seeds, and holds for that mask only. All hold for the held-out problems as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any, NamedTuple

from scipy.stats import t as student

from maskreg.analysis.pairwise import holm
from scripts.reproduce.arms import COMPARISONS

ENDPOINTS = ("kl", "p")
"""The primary endpoints."""

Record = dict[str, Any]
Cells = Mapping[tuple[int | None, int], float]
"""A value for each run: mask seed, None for a mask without one, and training seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean over masks and training seeds.

    Attributes:
        mean: of all runs.
        sd: their standard deviation; None for a single run.
        masks: how many masks; 1 also where the mask has no seed.
        seeds: how many training seeds.
    """

    mean: float
    sd: float | None = None
    masks: int = 1
    seeds: int = 1

    @classmethod
    def of(cls, cells: Cells) -> Estimate:
        """From runs in which every mask has a training seed of its own, or all have the same mask."""
        values = list(cells.values())
        masks, seeds = ({key[side] for key in cells} for side in (0, 1))
        return cls(mean(values), stdev(values) if len(values) > 1 else None, len(masks), len(seeds))

    @property
    def half(self) -> float | None:
        """Half the width of the 95 % interval."""
        if self.sd is None:
            return None
        quantile = float(student.ppf(0.975, self.seeds - 1))
        return quantile * self.sd / math.sqrt(self.seeds)

    @property
    def p(self) -> float | None:
        """Two-sided p-value of a mean of 0."""
        if self.sd is None:
            return None
        if not self.sd:
            return float(self.mean == 0)
        return 2 * float(student.sf(abs(self.mean) / self.sd * self.seeds**0.5, self.seeds - 1))

    def to_json(self) -> dict[str, Any]:
        """Everything, with the bounds of the interval."""
        bounds = None if self.half is None else [self.mean - self.half, self.mean + self.half]
        return {**asdict(self), "interval": bounds, "p": self.p}


class Comparison(NamedTuple):
    """First arm minus second.

    Attributes:
        first, second: arms.
        differences: by primary endpoint.
        corrected: p-values of them, corrected for all comparisons on all primary endpoints; empty for a single cell.
        share: difference of their shares of the full arm's gain.
        visible: mean visible densities of both arms in the runs that are compared.
    """

    first: str
    second: str
    differences: Mapping[str, Estimate]
    corrected: Mapping[str, float]
    share: Estimate
    visible: tuple[float, float]


@dataclass(frozen=True)
class Results:
    """All runs.

    Attributes:
        source: measurements of the source.
        teacher: of the teacher.
        runs: by arm, one for each mask and training seed.
        planned: how many runs of arms there are to be; 0 if these are all.
    """

    source: Record
    teacher: Record
    runs: Mapping[str, list[Record]]
    planned: int = 0

    def values(self, arm: str, endpoint: str) -> list[float]:
        """An endpoint on held-out problems, for every run."""
        return list(self.cells(arm, endpoint).values())

    def average(self, arm: str, field: str) -> float:
        """Mean of a field over runs."""
        return mean(float(run[field]) for run in self.runs[arm])

    def difference(self, first: str, second: str, endpoint: str) -> Estimate:
        """First arm minus second, within mask seed and training seed.

        An arm whose masks have no seeds is paired with every mask of the other; of arms with masks of two origins,
        the ones of one mask seed, whose runs saw the same problems in the same order, are paired.
        """
        return Estimate.of(self.paired(first, second, endpoint))

    def paired(self, first: str, second: str, endpoint: str) -> Cells:
        """These differences, by mask seed and training seed; ``share`` is an endpoint, too."""
        return {key: ours - theirs for key, (ours, theirs) in self._both(first, second, endpoint).items()}

    def cells(self, arm: str, endpoint: str) -> Cells:
        """An endpoint on held-out problems, ``share`` or ``visible_density``, by mask seed and training seed."""
        if endpoint == "share":
            start = float(self.source["held_out"]["kl"])
            full = {seed: kl for (_, seed), kl in self.cells("full", "kl").items()}
            return {
                (mask, seed): (start - kl) / (start - full[seed]) if start != full[seed] else 0.0
                for (mask, seed), kl in self.cells(arm, "kl").items()
            }
        values = [(run if endpoint == "visible_density" else run["held_out"])[endpoint] for run in self.runs[arm]]
        return {
            (run["mask_seed"], run["seed"]): float(value) for run, value in zip(self.runs[arm], values, strict=True)
        }

    def _both(self, first: str, second: str, endpoint: str) -> dict[tuple[int | None, int], tuple[float, float]]:
        ours, theirs = self.cells(first, endpoint), self.cells(second, endpoint)
        keys = ours if any(mask is not None for mask, _ in ours) else theirs
        pairs = [(key, _key_in(ours, key), _key_in(theirs, key)) for key in keys]
        return {key: (ours[left], theirs[right]) for key, left, right in pairs if left and right}

    def share(self, arm: str) -> Estimate:
        """An arm's share of the full arm's gain in KL with the same training seed."""
        return Estimate.of(self.cells(arm, "share"))

    def comparisons(self) -> list[Comparison]:
        """The planned comparisons of which both arms were run with one mask and seed at least."""
        pairs = [pair for pair in COMPARISONS if self.runs.keys() >= set(pair) and self._both(*pair, "kl")]
        tests = {(pair, endpoint): self.difference(*pair, endpoint) for pair in pairs for endpoint in ENDPOINTS}
        p_values = {key: estimate.p for key, estimate in tests.items() if estimate.p is not None}
        corrected = dict(zip(p_values, holm(list(p_values.values()), len(p_values)), strict=True))
        return [
            Comparison(
                *pair,
                {endpoint: tests[pair, endpoint] for endpoint in ENDPOINTS},
                {endpoint: p for endpoint in ENDPOINTS if (p := corrected.get((pair, endpoint))) is not None},
                self.difference(*pair, "share"),
                self._visible(*pair),
            )
            for pair in pairs
        ]

    def _visible(self, first: str, second: str) -> tuple[float, float]:
        pairs = self._both(first, second, "visible_density").values()
        return mean(ours for ours, _ in pairs), mean(theirs for _, theirs in pairs)

    def gain(self) -> tuple[float, float]:
        """Mean and standard deviation over seeds of how much lower KL is in the full arm than in the source."""
        start = float(self.source["held_out"]["kl"])
        falls = [start - value for value in self.values("full", "kl")]
        return mean(falls), stdev(falls) if len(falls) > 1 else 0.0

    def learned(self) -> bool:
        """Whether the full arm beats the source by 5 paired standard deviations; else nothing was tested."""
        fall, spread = self.gain()
        return fall > 0 and fall >= 5 * spread


def _key_in(cells: Cells, key: tuple[int | None, int]) -> tuple[int | None, int] | None:
    """The cell that belongs to a mask seed and a training seed; a mask without a seed belongs to all."""
    return next((known for known in (key, (None, key[1])) if known in cells), None)
