"""Sums over tensors, the answer in words, consensus and stripes."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from maskreg.analysis.chance import expect_matched, odds_sums
from maskreg.analysis.comparison import stripes_of
from maskreg.analysis.evidence import (
    BY_BOTH,
    BY_EXPONENT,
    BY_TENSOR,
    GLOBAL,
    MATCHED,
    NO_SOURCE,
    NULLS,
    PER_TENSOR,
    ROUNDING,
    ROUNDING_A,
    ROUNDING_B,
    STRIPED,
    OverlapSums,
    figures_of,
    sums_from_classes,
    sums_from_counts,
)
from maskreg.analysis.overlap import OverlapCounts


def cells(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = np.zeros((512, 4), np.int64)
    found[rng.choice(512, 20, replace=False)] = rng.integers(0, 50, (20, 4))
    return found


def tensor(seed: int) -> OverlapSums:
    return sums_from_classes(cells(seed), np.full(512, 0.3), np.full(512, 0.6))


def test_the_whole_is_what_its_strata_say() -> None:
    several = [cells(seed) for seed in range(4)]
    found = figures_of(reduce(lambda one, other: one + other, map(tensor, range(4)), OverlapSums()))
    together = np.sum(several, axis=0)
    table = OverlapCounts(*(int(together[:, inside].sum()) for inside in (slice(4), [1, 3], [2, 3], 3)))
    assert (found.tensors, found.counts) == (4, table)
    assert found.nulls[GLOBAL].expected == pytest.approx(table.a * table.b / table.numel)
    by_tensor = np.array([one.sum(0) for one in several])
    by_exponent = together.reshape(256, 2, 4).sum(1)
    by_both = np.concatenate([one.reshape(256, 2, 4).sum(1) for one in several])
    assert found.nulls[PER_TENSOR].expected == pytest.approx(expect_matched(by_tensor).expected)
    assert found.nulls[MATCHED].expected == pytest.approx(expect_matched(np.concatenate(several)).expected)
    assert found.nulls[ROUNDING].expected == pytest.approx(0.18 * table.numel)
    assert found.nulls[ROUNDING_A].expected == pytest.approx(0.3 * table.b)
    assert found.nulls[ROUNDING_B].expected == pytest.approx(0.6 * table.a)
    for strata, name in ((by_tensor, BY_TENSOR), (by_exponent, BY_EXPONENT), (by_both, BY_BOTH)):
        assert found.mantel_haenszel[name] == pytest.approx(odds_sums(strata).ratio)


def test_without_the_source_what_needs_it_says_so() -> None:
    found = figures_of(
        OverlapSums() + sums_from_counts(OverlapCounts(100, 40, 30, 20)) + sums_from_counts(OverlapCounts(50, 0, 9, 0))
    )
    assert found.nulls[PER_TENSOR].expected == pytest.approx(12)
    assert {found.nulls[null].reason for null in NULLS[2:] if null != STRIPED} == {NO_SOURCE}
    assert (found.mantel_haenszel[BY_EXPONENT], found.mantel_haenszel[BY_BOTH]) == (None, None)
    assert found.mantel_haenszel[BY_TENSOR] == pytest.approx(5)


def test_stripes_of_a_matrix() -> None:
    mask = np.zeros((4, 6), bool)
    mask[1] = True
    found = stripes_of(mask.sum(1), mask.sum(0))
    assert (found.rows.count, found.rows.full, found.rows.empty) == (4, 0.25, 0.75)
    assert found.rows.variance == pytest.approx(3 / 16)
    assert found.rows.dispersion == pytest.approx(6)
    assert (found.columns.full, found.columns.empty, found.columns.variance) == (0, 0, 0)
    still = stripes_of(np.zeros(4, np.int64), np.zeros(6, np.int64))
    assert (still.rows.dispersion, still.rows.empty) == (None, 1)
    assert stripes_of(np.zeros(0, np.int64), np.zeros(6, np.int64)).rows.variance is None
