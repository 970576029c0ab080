"""What is known of the overlap of two masks: sums that add up from tensors to roles, layers and the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.chance import Beside, Chance, Odds, beside, matched, odds, one_stratum, rounding, uniform
from maskreg.analysis.overlap import Overlap, Table, overlap_of

Cells = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GLOBAL = "random-global"
PER_TENSOR = "random-per-tensor"
MATCHED = "exponent-matched"
ROUNDING = "rounding-null"
ROUNDING_A = "rounding-null-a"
ROUNDING_B = "rounding-null-b"

NULLS = (GLOBAL, PER_TENSOR, MATCHED, ROUNDING, ROUNDING_A, ROUNDING_B)
"""What an overlap stands beside, the weakest first; those from ``exponent-matched`` on need the source."""

BY_TENSOR = "by-tensor"
BY_EXPONENT = "by-exponent"
BY_BOTH = "by-tensor-and-exponent"

STRATA = (BY_TENSOR, BY_EXPONENT, BY_BOTH)
"""What Mantel-Haenszel odds ratios are stratified by; those by exponent need the source."""

NO_SOURCE = "the source checkpoint is not at hand"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums over a group of tensors.

    Attributes:
        tensors: how many.
        table: their coordinates.
        chances: by null, without ``random-global``, which is about a group as a whole.
        by_tensor, by_both: odds over tensors, and over the exponents of each tensor.
        exponents: int64 ``[256, 4]``, 2x2 tables by exponent; None without the source.
    """

    tensors: int = 0
    table: Table = field(default_factory=Table)
    chances: Mapping[str, Chance] = field(default_factory=lambda: dict.fromkeys(NULLS[1:], Chance()))
    by_tensor: Odds = field(default_factory=Odds)
    by_both: Odds = field(default_factory=Odds)
    exponents: Cells | None = field(default_factory=lambda: np.zeros((256, 4), np.int64))

    def __add__(self, other: Evidence) -> Evidence:
        exponents = None
        if self.exponents is not None and other.exponents is not None:
            exponents = self.exponents + other.exponents
        return Evidence(
            self.tensors + other.tensors,
            self.table + other.table,
            {null: self.chances[null] + other.chances[null] for null in NULLS[1:]},
            self.by_tensor + other.by_tensor,
            self.by_both + other.by_both,
            exponents,
        )


@dataclass(frozen=True)
class Figures:
    """Everything about the overlap of two masks in one group of tensors.

    Attributes:
        tensors: how many were counted.
        table: the counts.
        overlap: what they say alone.
        nulls: by null, the overlap beside it.
        mantel_haenszel: by stratification, Mantel-Haenszel odds ratios; None where undefined or without the source.
    """

    tensors: int
    table: Table
    overlap: Overlap
    nulls: Mapping[str, Beside]
    mantel_haenszel: Mapping[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "tensors": self.tensors,
            "coordinates": self.table.numel,
            "nnz_a": self.table.a,
            "nnz_b": self.table.b,
            "nnz_both": self.table.both,
            **dataclasses.asdict(self.overlap),
            "nulls": {name: dataclasses.asdict(found) for name, found in self.nulls.items()},
            "mantel_haenszel": dict(self.mantel_haenszel),
        }


def figures_of(evidence: Evidence) -> Figures:
    """The figures of a group of tensors."""
    table = evidence.table
    chances = {GLOBAL: uniform(table), **evidence.chances}
    exponents = evidence.exponents
    return Figures(
        evidence.tensors,
        table,
        overlap_of(table),
        {null: beside(table, chances[null]) for null in NULLS},
        {
            BY_TENSOR: evidence.by_tensor.ratio,
            BY_EXPONENT: None if exponents is None else odds(exponents).ratio,
            BY_BOTH: None if exponents is None else evidence.by_both.ratio,
        },
    )


def of_counts(table: Table) -> Evidence:
    """What is known of one tensor without the source."""
    unknown = dict.fromkeys(NULLS[2:], Chance(None, reason=NO_SOURCE))
    return Evidence(1, table, {PER_TENSOR: uniform(table), **unknown}, odds(one_stratum(table)), Odds(), None)


def of_classes(cells: Cells, flips_a: Floats | str, flips_b: Floats | str) -> Evidence:
    """What is known of one tensor with the source.

    Args:
        cells: int64 ``[512, 4]``, 2x2 tables by class of the source's codes.
        flips_a: chances of A by class under the rounding null; or why there are none.
        flips_b: likewise B's.
    """
    neither, only_a, only_b, both = (int(count) for count in cells.sum(0))
    table = Table(neither + only_a + only_b + both, only_a + both, only_b + both, both)
    exponents = cells.reshape(256, 2, 4).sum(1)
    return Evidence(
        1,
        table,
        {
            PER_TENSOR: uniform(table),
            MATCHED: matched(cells),
            ROUNDING: _rounding(cells, flips_a, flips_b),
            ROUNDING_A: _rounding(cells, flips_a, None),
            ROUNDING_B: _rounding(cells, None, flips_b),
        },
        odds(one_stratum(table)),
        odds(exponents),
        exponents,
    )


def _rounding(cells: Cells, a: Floats | str | None, b: Floats | str | None) -> Chance:
    for side in (a, b):
        if isinstance(side, str):
            return Chance(None, reason=side)
    return rounding(cells, *(None if side is None or isinstance(side, str) else side for side in (a, b)))
