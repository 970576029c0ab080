"""Evidence about the overlap of two masks: sums that add up from tensors to roles, layers and the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.chance import (
    Excess,
    Expectation,
    OddsSums,
    excess_of,
    expect_matched,
    expect_rounding,
    expect_uniform,
    odds_sums,
    one_stratum,
)
from maskreg.analysis.overlap import Overlap, OverlapCounts, overlap_of

Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GLOBAL = "random-global"
PER_TENSOR = "random-per-tensor"
MATCHED = "exponent-matched"
ROUNDING = "rounding-null"
ROUNDING_A = "rounding-null-a"
ROUNDING_B = "rounding-null-b"

NULLS = (GLOBAL, PER_TENSOR, MATCHED, ROUNDING, ROUNDING_A, ROUNDING_B)
"""The null models of an overlap, the weakest first; ``exponent-matched`` and those after it need the source."""

BY_TENSOR = "by-tensor"
BY_EXPONENT = "by-exponent"
BY_BOTH = "by-tensor-and-exponent"

STRATA = (BY_TENSOR, BY_EXPONENT, BY_BOTH)
"""Stratifications of the Mantel-Haenszel odds ratio; those by exponent need the source."""

NO_SOURCE = "the source checkpoint is not available"


@dataclass(frozen=True, eq=False)
class OverlapSums:
    """Sums over a group of tensors.

    Attributes:
        tensors: how many.
        counts: their coordinates.
        expectations: by null, without ``random-global``, which is about the group as a whole.
        by_tensor: odds sums over tensors.
        by_both: odds sums over the exponents of each tensor.
        exponents: int64 ``[256, 4]``, 2x2 tables by exponent; None without the source.
    """

    tensors: int = 0
    counts: OverlapCounts = field(default_factory=OverlapCounts)
    expectations: Mapping[str, Expectation] = field(default_factory=lambda: dict.fromkeys(NULLS[1:], Expectation()))
    by_tensor: OddsSums = field(default_factory=OddsSums)
    by_both: OddsSums = field(default_factory=OddsSums)
    exponents: Cells | None = field(default_factory=lambda: np.zeros((256, 4), np.int64))

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
        )


@dataclass(frozen=True)
class OverlapFigures:
    """All figures of the overlap of two masks in one group of tensors.

    Attributes:
        tensors: how many were counted.
        counts: the 2x2 table.
        overlap: figures of the table alone.
        nulls: the excess over each null.
        mantel_haenszel: odds ratios by stratification; None where undefined or without the source.
    """

    tensors: int
    counts: OverlapCounts
    overlap: Overlap
    nulls: Mapping[str, Excess]
    mantel_haenszel: Mapping[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "tensors": self.tensors,
            "coordinates": self.counts.numel,
            "nnz_a": self.counts.a,
            "nnz_b": self.counts.b,
            "nnz_both": self.counts.both,
            **dataclasses.asdict(self.overlap),
            "nulls": {null: dataclasses.asdict(excess) for null, excess in self.nulls.items()},
            "mantel_haenszel": dict(self.mantel_haenszel),
        }


def figures_of(sums: OverlapSums) -> OverlapFigures:
    """The figures of a group of tensors."""
    expectations = {GLOBAL: expect_uniform(sums.counts), **sums.expectations}
    exponents = sums.exponents
    return OverlapFigures(
        sums.tensors,
        sums.counts,
        overlap_of(sums.counts),
        {null: excess_of(sums.counts, expectations[null]) for null in NULLS},
        {
            BY_TENSOR: sums.by_tensor.ratio,
            BY_EXPONENT: None if exponents is None else odds_sums(exponents).ratio,
            BY_BOTH: None if exponents is None else sums.by_both.ratio,
        },
    )


def sums_from_counts(counts: OverlapCounts) -> OverlapSums:
    """Sums of one tensor without the source."""
    undefined = dict.fromkeys(NULLS[2:], Expectation(None, reason=NO_SOURCE))
    expectations = {PER_TENSOR: expect_uniform(counts), **undefined}
    return OverlapSums(1, counts, expectations, odds_sums(one_stratum(counts)), OddsSums(), None)


def sums_from_classes(cells: Cells, flips_a: Floats | str, flips_b: Floats | str) -> OverlapSums:
    """Sums of one tensor with the source.

    Args:
        cells: int64 ``[512, 4]``, 2x2 tables by class of the source's codes.
        flips_a: chances of A by class under the rounding null, or why it is undefined.
        flips_b: the same of B.
    """
    neither, only_a, only_b, both = (int(count) for count in cells.sum(0))
    counts = OverlapCounts(neither + only_a + only_b + both, only_a + both, only_b + both, both)
    # Classes 2e and 2e + 1 share the exponent field e.
    exponents = cells.reshape(256, 2, 4).sum(1)
    return OverlapSums(
        1,
        counts,
        {
            PER_TENSOR: expect_uniform(counts),
            MATCHED: expect_matched(cells),
            ROUNDING: _rounding(cells, flips_a, flips_b),
            ROUNDING_A: _rounding(cells, flips_a, None),
            ROUNDING_B: _rounding(cells, None, flips_b),
        },
        odds_sums(one_stratum(counts)),
        odds_sums(exponents),
        exponents,
    )


def _rounding(cells: Cells, a: Floats | str | None, b: Floats | str | None) -> Expectation:
    if isinstance(a, str):
        return Expectation(None, reason=a)
    if isinstance(b, str):
        return Expectation(None, reason=b)
    return expect_rounding(cells, a, b)
