"""Comparisons of arms over masks and training seeds, with intervals that hold for other masks and seeds.

A difference between two arms, or a share of the full arm's gain, is taken between runs of one mask m and one training
seed t, and modeled with random effects::

    y[m, t] = mean + mask[m] + seed[t] + rest[m, t]

If every mask has a training seed of its own, the n differences are independent, and each contains all three effects:
the interval is Student's t with n - 1 degrees of freedom. It is exact for normal effects, and no other design
of as many runs has a smaller error. If M masks are crossed with T training seeds, the effects can be told apart::

    A = T * variance of the means of masks     expected: T var(mask) + var(rest)
    B = M * variance of the means of seeds     expected: M var(seed) + var(rest)

    squared standard error of the mean = var(mask) / M + var(seed) / T + var(rest) / (M T), estimated by (A + B) / (M T)
    degrees of freedom (Satterthwaite) = (A + B)^2 / (A^2 / (M - 1) + B^2 / (T - 1))

The estimate counts var(rest) twice. So it cannot be negative, and its intervals are not too narrow: with 3 x 3
cover in 95 to 99 % of simulated draws, in more of them, the more of the spread is ``rest``. With one mask, an interval
is the paired t over training seeds, and holds for that mask only. All hold for the held-out problems as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev, variance
from typing import Any, NamedTuple

from maskreg.analysis.pairwise import holm
from scripts.reproduce.arms import COMPARISONS
from scripts.reproduce.student_t import t975, two_sided

ENDPOINTS = ("kl", "p")
"""The primary endpoints."""

Record = dict[str, Any]
Cells = Mapping[tuple[int | None, int], float]
"""A value for each mask seed, None for a mask without one, and training seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean over masks and training seeds.

    Attributes:
        mean: of all cells.
        error: its standard error; None for a single cell.
        degrees: degrees of freedom of the standard error.
        masks: how many masks; 1 also where the mask has no seed.
        seeds: how many training seeds.
    """

    mean: float
    error: float | None = None
    degrees: float = 0.0
    masks: int = 1
    seeds: int = 1

    @classmethod
    def of(cls, cells: Cells) -> Estimate:
        """From cells in which every mask has the same seeds, or every mask a seed of its own."""
        values, masks, seeds = list(cells.values()), len(_masks_of(cells)), len(_seeds_of(cells))
        if len(values) == 1:
            return cls(values[0])
        grid = _grid_of(cells)
        if not grid:
            return cls(mean(values), stdev(values) / len(values) ** 0.5, len(values) - 1, masks, seeds)
        rows, columns, _ = _mean_squares(grid)
        total = rows + columns
        degrees = total**2 / (rows**2 / (masks - 1) + columns**2 / (seeds - 1)) if total else min(masks, seeds) - 1.0
        return cls(mean(values), (total / (masks * seeds)) ** 0.5, degrees, masks, seeds)

    @cached_property
    def half(self) -> float | None:
        """Half the width of the 95 % interval."""
        return None if self.error is None else t975(self.degrees) * self.error

    @property
    def p(self) -> float | None:
        """Two-sided p-value of a mean of 0."""
        if self.error is None:
            return None
        if not self.error:
            return float(self.mean == 0)
        return two_sided(self.mean / self.error, self.degrees)

    def to_json(self) -> dict[str, Any]:
        """Everything, with the bounds of the interval."""
        bounds = None if self.half is None else [self.mean - self.half, self.mean + self.half]
        return {
            "mean": self.mean,
            "interval": bounds,
            "degrees": self.degrees,
            "p": self.p,
            "masks": self.masks,
            "seeds": self.seeds,
        }


class Spread(NamedTuple):
    """Standard deviations of the random effects; the first two are None where they cannot be told from the rest."""

    mask: float | None
    seed: float | None
    rest: float | None


def spread_of(cells: Cells) -> Spread:
    """Estimate the random effects; a variance that comes out negative is 0."""
    grid = _grid_of(cells)
    if not grid:
        return Spread(None, None, stdev(cells.values()) if len(cells) > 1 else None)
    rows, columns, rest = _mean_squares(grid)
    masks, seeds = len(grid), len(grid[0])
    return Spread(max(0.0, (rows - rest) / seeds) ** 0.5, max(0.0, (columns - rest) / masks) ** 0.5, rest**0.5)


def _grid_of(cells: Cells) -> list[list[float]]:
    """A row for each mask and a column for each seed; empty where they are not crossed."""
    masks, seeds = _masks_of(cells), _seeds_of(cells)
    if min(len(masks), len(seeds)) == 1 or len(cells) == len(masks) == len(seeds):
        return []
    return [[cells[mask, seed] for seed in seeds] for mask in masks]


def _mean_squares(grid: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Mean squares of rows, of columns, and of what is left of the cells."""
    rows, columns = [mean(row) for row in grid], [mean(column) for column in zip(*grid, strict=True)]
    center = mean(rows)
    left = sum(
        (value - row - column + center) ** 2
        for values, row in zip(grid, rows, strict=True)
        for value, column in zip(values, columns, strict=True)
    )
    return (
        len(columns) * variance(rows),
        len(rows) * variance(columns),
        left / ((len(rows) - 1) * (len(columns) - 1)),
    )


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
        keys = ours if _masks_of(ours) != [None] else theirs
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


def _masks_of(cells: Cells) -> list[int | None]:
    return sorted({mask for mask, _ in cells}, key=lambda mask: -1 if mask is None else mask)


def _seeds_of(cells: Cells) -> list[int]:
    return sorted({seed for _, seed in cells})


def _key_in(cells: Cells, key: tuple[int | None, int]) -> tuple[int | None, int] | None:
    """The cell that belongs to a mask seed and a training seed; a mask without a seed belongs to all."""
    return next((known for known in (key, (None, key[1])) if known in cells), None)
