"""Figures of the overlap of two masks, from four counts.

A figure whose denominator is 0 is None: an empty mask has no coverage and no lift, a full one no phi. Published code
returns 1.0 there ("Dense Supervision, Sparse Updates"), which reads as perfect agreement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add
from typing import Self


class Sums:
    """Base of frozen dataclasses of sums: two add up field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class OverlapCounts(Sums):
    """A 2x2 table: coordinates in all, in mask A, in mask B and in both."""

    numel: int = 0
    a: int = 0
    b: int = 0
    both: int = 0

    def __post_init__(self) -> None:
        most = min(self.a, self.b)
        if not (max(0, self.a + self.b - self.numel) <= self.both <= most and max(self.a, self.b) <= self.numel):
            raise ValueError(f"masks of {self.a} and {self.b} of {self.numel} coordinates cannot share {self.both}")

    @property
    def most(self) -> int:
        """The largest overlap that masks of these sizes can have."""
        return min(self.a, self.b)

    @property
    def neither(self) -> int:
        """Coordinates in neither mask."""
        return self.numel - self.a - self.b + self.both


@dataclass(frozen=True)
class Overlap:
    """Figures of one 2x2 table, each None where its denominator is 0; the glossary defines them.

    Attributes:
        density_a, density_b: p = |A| / N and q = |B| / N.
        coverage_a, coverage_b: share of A that is in B, and share of B that is in A.
        jaccard, jaccard_random: |A and B| / |A or B|, and pq / (p + q - pq).
        lift, lift_max, lift_share: i / (Npq), 1 / max(p, q), and the first over the second.
        phi, phi_max: correlation of the two masks, and the largest that their densities allow.
        odds_ratio: a d / (b c), not stratified.
    """

    density_a: float | None
    density_b: float | None
    coverage_a: float | None
    coverage_b: float | None
    jaccard: float | None
    jaccard_random: float | None
    lift: float | None
    lift_max: float | None
    lift_share: float | None
    phi: float | None
    phi_max: float | None
    odds_ratio: float | None


def overlap_of(counts: OverlapCounts) -> Overlap:
    """All figures of a 2x2 table.

    Products are of integers, so what is symmetric in A and B is equal to the last bit. Example: N = 100, |A| = 40,
    |B| = 30, i = 20 gives coverages 1/2 and 2/3, Jaccard 20/50, lift 2000/1200 = 1.67 of at most 100/40 = 2.5, phi
    800 / sqrt(40 60 30 70) = 0.36 and the odds ratio 20 50 / (20 10) = 5.
    """
    n, a, b, both = counts.numel, counts.a, counts.b, counts.both
    discordant = (a - both) * (b - both)
    scale = math.sqrt(a * (n - a) * b * (n - b))
    return Overlap(
        density_a=ratio(a, n),
        density_b=ratio(b, n),
        coverage_a=ratio(both, a),
        coverage_b=ratio(both, b),
        jaccard=ratio(both, a + b - both),
        jaccard_random=ratio(a * b, n * (a + b) - a * b),
        lift=ratio(both * n, a * b),
        lift_max=ratio(n, max(a, b)),
        lift_share=ratio(both, counts.most),
        phi=ratio(both * n - a * b, scale),
        phi_max=ratio(counts.most * n - a * b, scale),
        odds_ratio=odds(both * counts.neither, discordant),
    )


def odds(concordant: float, discordant: float) -> float | None:
    """An odds ratio; infinite where one mask holds the other in every stratum, and None where nothing is counted."""
    return concordant / discordant if discordant else math.inf if concordant else None


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``; None where ``whole`` is 0."""
    return part / whole if whole else None
