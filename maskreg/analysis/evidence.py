"""Evidence about the overlap of two masks: sums that add up from tensors to roles, layers and the whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.chance import (
    Expectation,
    OddsSums,
    expect_matched,
    expect_rounding,
    expect_uniform,
    odds_sums,
    one_stratum,
    sizes_of,
)
from maskreg.analysis.clusters import (
    CONCORDANT,
    CONCORDANT_TENSOR,
    DISCORDANT,
    DISCORDANT_TENSOR,
    NUMEL,
    SIZE_A,
    SIZE_B,
    Covariances,
    Spread,
    spread_of,
)
from maskreg.analysis.clusters import STRIPED as STRIPED
from maskreg.analysis.contingency import IN_A, IN_B
from maskreg.analysis.excess import CERTAIN, Z95, Distribution, Excess, Interval, distribution_of, excess_of
from maskreg.analysis.grid import Grid
from maskreg.analysis.margins import Margins
from maskreg.analysis.overlap import Overlap, OverlapCounts, overlap_of
from maskreg.checkpoint.roles import ALONE, Shared
from maskreg.result import Brief, plain

Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GLOBAL = "random-global"
"""One mask redrawn with as many coordinates, anywhere in the group."""

PER_TENSOR = "random-per-tensor"
"""One mask redrawn with as many coordinates in every tensor."""

MATCHED = "exponent-matched"
"""One mask redrawn with as many coordinates in every exponent class of every tensor."""

ROUNDING = "rounding-null"
"""Both masks as rounding alone makes them of noise as strong as the updates."""

ROUNDING_A = "rounding-null-a"
"""A alone as rounding makes it, beside B as it is."""

ROUNDING_B = "rounding-null-b"
"""B alone as rounding makes it, beside A as it is."""

NULLS = (GLOBAL, PER_TENSOR, MATCHED, STRIPED, ROUNDING, ROUNDING_A, ROUNDING_B)
"""The null models of an overlap; ``exponent-matched`` and those after it need the source, except for
``row-column-matched``, which without it does without exponents."""

BY_TENSOR = "by-tensor"
"""Strata of the odds ratio: tensors."""

BY_EXPONENT = "by-exponent"
"""Strata of the odds ratio: exponents of the source, over all tensors."""

BY_BOTH = "by-tensor-and-exponent"
"""Strata of the odds ratio: exponents of the source in each tensor."""

STRATA = (BY_TENSOR, BY_EXPONENT, BY_BOTH)
"""Stratifications of the Mantel-Haenszel odds ratio; those by exponent need the source."""

Lined = tuple[Grid, Margins]
"""Counts of two masks by row and column, and what these add to the overlap that is expected."""

NO_SOURCE = "the source checkpoint is not available"
"""Why what needs the source is undefined."""


@dataclass(frozen=True, eq=False)
class OverlapSums:
    """Sums over a group of tensors.

    Attributes:
        expectations: by null, without ``random-global``, which is about the group as a whole.
        by_tensor, by_both: odds sums over tensors, and over the exponents of each.
        exponents: int64 ``[256, 4]``, 2x2 tables by exponent; None without the source.
        spread: covariances of the sums; empty without tensors.
        exact: distribution of the overlap under the finest null whose strata are drawn from, where counts are small.
    """

    tensors: int = 0
    counts: OverlapCounts = field(default_factory=OverlapCounts)
    expectations: Mapping[str, Expectation] = field(default_factory=lambda: dict.fromkeys(NULLS[1:], Expectation()))
    by_tensor: OddsSums = field(default_factory=OddsSums)
    by_both: OddsSums = field(default_factory=OddsSums)
    exponents: Cells | None = field(default_factory=lambda: np.zeros((256, 4), np.int64))
    spread: Spread = field(default_factory=Spread)
    exact: Distribution = CERTAIN

    def __add__(self, other: OverlapSums) -> OverlapSums:
        exponents = None
        if self.exponents is not None and other.exponents is not None:
            exponents = self.exponents + other.exponents
        return OverlapSums(
            self.tensors + other.tensors,
            self.counts + other.counts,
            {null: self.expectations[null] + other.expectations[null] for null in NULLS[1:]},
            self.by_tensor + other.by_tensor,
            self.by_both + other.by_both,
            exponents,
            self.spread + other.spread,
            self.exact + other.exact,
        )


@dataclass(frozen=True)
class OverlapFigures(Brief):
    """All figures of the overlap of two masks in one group of tensors.

    Odds ratios by stratification are None where undefined or without the source, and infinite where one mask holds the
    other in every stratum. Their 95 % intervals are None where they are not finite, and for strata by exponent alone.
    """

    tensors: int
    counts: OverlapCounts
    overlap: Overlap
    nulls: Mapping[str, Excess]
    mantel_haenszel: Mapping[str, float | None]
    mantel_haenszel_intervals: Mapping[str, Interval | None]

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null, infinite ones the text ``infinite``."""
        overlap = dataclasses.asdict(self.overlap)
        return {
            "tensors": self.tensors,
            "coordinates": self.counts.numel,
            "nnz_a": self.counts.a,
            "nnz_b": self.counts.b,
            "nnz_both": self.counts.both,
            **{name: _finite(value) for name, value in overlap.items()},
            "nulls": {null: plain(dataclasses.asdict(excess)) for null, excess in self.nulls.items()},
            "mantel_haenszel": {strata: _finite(value) for strata, value in self.mantel_haenszel.items()},
            "mantel_haenszel_intervals": plain(dict(self.mantel_haenszel_intervals)),
        }


def _finite(value: float | None) -> float | str | None:
    return "infinite" if value == math.inf else value


def figures_of(sums: OverlapSums) -> OverlapFigures:
    """The figures of a group of tensors."""
    expectations = {GLOBAL: expect_uniform(sums.counts), **sums.expectations}
    exponents = sums.exponents
    spread = sums.spread.covariances.with_sum(GLOBAL, _uniform_slopes(sums.counts)) if sums.spread.names else None
    finest = PER_TENSOR if expectations[MATCHED].expected is None else MATCHED
    odds = {
        BY_TENSOR: (sums.by_tensor, CONCORDANT_TENSOR, DISCORDANT_TENSOR),
        BY_EXPONENT: (None if exponents is None else odds_sums(exponents), "", ""),
        BY_BOTH: (None if exponents is None else sums.by_both, CONCORDANT, DISCORDANT),
    }
    return OverlapFigures(
        sums.tensors,
        sums.counts,
        overlap_of(sums.counts),
        {
            null: excess_of(sums.counts, expectations[null], spread, null, sums.exact if null == finest else None)
            for null in NULLS
        },
        {strata: None if both is None else both.ratio for strata, (both, _, _) in odds.items()},
        {strata: _odds_interval(both, spread, *names) for strata, (both, *names) in odds.items()},
    )


def _uniform_slopes(counts: OverlapCounts) -> dict[str, float]:
    n = max(counts.numel, 1)
    return {SIZE_A: counts.b / n, SIZE_B: counts.a / n, NUMEL: -counts.a * counts.b / n**2}


def _odds_interval(
    both: OddsSums | None, spread: Covariances | None, concordant: str, discordant: str
) -> Interval | None:
    """95 % interval of an odds ratio, symmetric in its logarithm."""
    if both is None or spread is None or not concordant or not both.concordant or not both.discordant:
        return None
    error = spread.sd({concordant: 1 / both.concordant, discordant: -1 / both.discordant})
    logarithm = math.log(both.concordant / both.discordant)
    return math.exp(logarithm - Z95 * error), math.exp(logarithm + Z95 * error)


def sums_from_counts(counts: OverlapCounts, lines: Lined | None = None, *, shared: Shared = ALONE) -> OverlapSums:
    """Sums of one tensor without the source; as :func:`sums_from_classes`, all in one class."""
    stratum, (grid, margins) = one_stratum(counts), lines or (None, None)
    cells = stratum if grid is None else grid.cells[grid.classes]
    undefined = dict.fromkeys(NULLS[2:], Expectation(None, reason=NO_SOURCE))
    uniform = expect_uniform(counts)
    expectations = {**undefined, PER_TENSOR: uniform, STRIPED: _striped(uniform, margins)}
    tables = _every({PER_TENSOR: _products_of(*_rates(stratum))}, PER_TENSOR)
    spread = spread_of(cells, tables, stratum, grid, margins, shared)
    return OverlapSums(1, counts, expectations, odds_sums(stratum), OddsSums(), None, spread, distribution_of(stratum))


def sums_from_classes(
    cells: Cells,
    flips_a: Floats | str,
    flips_b: Floats | str,
    lines: Lined | None = None,
    *,
    shared: Shared = ALONE,
) -> OverlapSums:
    """Sums of one tensor with the source.

    Args:
        cells: int64 ``[512, 4]``, 2x2 tables by class of the source's codes.
        flips_a: chances of A by class under the rounding null, or why it is undefined.
        flips_b: the same of B.
        lines: rows and columns; None for a tensor that has not several of both.
        shared: what its rows or columns have in common with other tensors.
    """
    neither, only_a, only_b, both = cells.sum(0).tolist()
    counts = OverlapCounts(neither + only_a + only_b + both, only_a + both, only_b + both, both)
    # Classes 2e and 2e + 1 share the exponent field e.
    exponents = cells.reshape(256, 2, 4).sum(1)
    classes = np.flatnonzero(cells.any(1))
    cells = cells[classes]
    a, b = (flips if isinstance(flips, str) else flips[classes] for flips in (flips_a, flips_b))
    grid, margins = lines or (None, None)
    matched = expect_matched(cells)
    expectations = {
        PER_TENSOR: expect_uniform(counts),
        MATCHED: matched,
        STRIPED: _striped(matched, margins),
        ROUNDING: _rounding(cells, a, b),
        ROUNDING_A: _rounding(cells, a, None),
        ROUNDING_B: _rounding(cells, None, b),
    }
    tables = _every(_class_tables(cells, a, b), MATCHED)
    spread = spread_of(cells, tables, exponents[classes >> 1], grid, margins, shared)
    return OverlapSums(
        1,
        counts,
        expectations,
        odds_sums(one_stratum(counts)),
        odds_sums(exponents),
        exponents,
        spread,
        distribution_of(cells),
    )


def _striped(by_class: Expectation, margins: Margins | None) -> Expectation:
    """The expectation by class, tensor or both, with what rows and columns add."""
    return by_class if margins is None else by_class + Expectation(margins.added)


def _every(tables: Mapping[str, Floats], finest: str) -> dict[str, Floats]:
    """Tables of all nulls, which add up over tensors; of rows and columns only the finest table."""
    return {**dict.fromkeys(NULLS[1:], np.zeros(())), **tables, STRIPED: tables[finest]}


def _class_tables(cells: Cells, a: Floats | str, b: Floats | str) -> dict[str, Floats]:
    """What a coordinate of each cell adds to the expectation of each null, float64 ``[k, 4]``."""
    rates = _rates(cells)
    chances = [rate if isinstance(flips, str) else flips for rate, flips in zip(rates, (a, b), strict=True)]
    return {
        PER_TENSOR: _products_of(*_rates(cells.sum(0, keepdims=True))),
        MATCHED: _products_of(*rates),
        # Whichever mask is redrawn, what varies is how far one follows the other.
        **dict.fromkeys((ROUNDING, ROUNDING_A, ROUNDING_B), _products_of(*chances)),
    }


def _rates(cells: Cells) -> tuple[Floats, Floats]:
    n, in_a, in_b = sizes_of(cells)
    return in_a / n, in_b / n


def _products_of(a: Floats, b: Floats) -> Floats:
    """Derivatives of n p q by the cells, for p and q the rates of both masks."""
    return b[:, None] * IN_A + a[:, None] * IN_B - (a * b)[:, None]


def _rounding(cells: Cells, a: Floats | str | None, b: Floats | str | None) -> Expectation:
    if isinstance(a, str):
        return Expectation(None, reason=a)
    if isinstance(b, str):
        return Expectation(None, reason=b)
    return expect_rounding(cells, a, b)
