"""Nulls and odds, against every mask that there is and against loops over dense masks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.chance import Expectation, expect_matched, expect_rounding, expect_uniform, odds_sums
from maskreg.analysis.excess import excess_of
from maskreg.analysis.overlap import OverlapCounts
from maskreg.mask.rounding import classes_of, fit_flips

Cells = np.ndarray


@st.composite
def strata(draw: st.DrawFn) -> Cells:
    rows = draw(st.lists(st.tuples(*[st.integers(0, 40)] * 4), min_size=1, max_size=6))
    return np.array(rows, np.int64)


@pytest.mark.parametrize(("n", "a", "b"), [(6, 2, 3), (7, 1, 6), (5, 5, 2), (4, 0, 2), (1, 1, 1)])
def test_uniform_is_the_mean_over_all_masks_of_that_size(n: int, a: int, b: int) -> None:
    fixed = set(range(b))
    shared = np.array([len(fixed & set(drawn)) for drawn in combinations(range(n), a)])
    chance = expect_uniform(OverlapCounts(n, a, b, max(0, a + b - n)))
    assert chance.expected == pytest.approx(shared.mean())
    assert chance.variance == pytest.approx(shared.var())


@given(strata())
def test_matched_is_the_sum_of_uniform_over_strata(cells: Cells) -> None:
    total = Expectation()
    for neither, only_a, only_b, both in cells.tolist():
        total += expect_uniform(OverlapCounts(neither + only_a + only_b + both, only_a + both, only_b + both, both))
    found = expect_matched(cells)
    assert found.expected == pytest.approx(total.expected)
    assert found.variance == pytest.approx(total.variance)


@given(strata())
def test_odds_are_mantel_haenszel(cells: Cells) -> None:
    alike = apart = 0.0
    for neither, only_a, only_b, both in cells.tolist():
        n = neither + only_a + only_b + both
        if n:
            alike += both * neither / n
            apart += only_a * only_b / n
    assert odds_sums(cells).ratio == (pytest.approx(alike / apart) if apart else np.inf if alike else None)
    assert odds_sums(cells[:, [0, 2, 1, 3]]).ratio == pytest.approx(odds_sums(cells).ratio)


def classes(seed: int = 0, numel: int = 40_000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.02, numel).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def test_rounding_expects_what_independent_noise_shares() -> None:
    """Two updates that know nothing of the weights, rounded: their overlap is the null's, the others' expect less."""
    codes = classes(1, 400_000)
    weights = (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    rng = np.random.default_rng(2)
    kinds = classes_of(codes)

    def updated(scale: float) -> np.ndarray:
        moved = (weights + rng.normal(0, scale, weights.size)).astype(np.float32).view(np.uint32)
        rounded = ((moved + (0x7FFF + ((moved >> 16) & 1))) >> 16).astype(np.uint16)
        changed: np.ndarray = rounded != codes
        return changed

    a, b = updated(3e-5), updated(1.2e-5)
    cells = np.zeros((512, 4), np.int64)
    np.add.at(cells, (kinds, a + 2 * b), 1)
    table = OverlapCounts(codes.size, int(a.sum()), int(b.sum()), int((a & b).sum()))
    members = cells.sum(1)
    flips_a, flips_b = fit_flips(members, table.a), fit_flips(members, table.b)
    for chance in (
        expect_rounding(cells, flips_a, flips_b),
        expect_rounding(cells, flips_a, None),
        expect_rounding(cells, None, flips_b),
        expect_matched(cells),
    ):
        assert abs(excess_of(table, chance).deviations or 9) < 4
    assert (excess_of(table, expect_uniform(table)).deviations or 0) > 100


def test_beside_a_null() -> None:
    table = OverlapCounts(100, 40, 30, 20)
    found = excess_of(table, Expectation(12.0, 4.0))
    assert (found.ratio, found.headroom, found.sd, found.deviations) == (20 / 12, 8 / 18, 2, 4)
    assert found.lift == 1.0
    undefined = excess_of(table, Expectation(None, reason="why"))
    assert (undefined.expected, undefined.ratio, undefined.reason) == (None, None, "why")
    assert excess_of(OverlapCounts(100, 40, 30, 30), Expectation(30.0, 0.0)).headroom is None
    # Below chance, the room is that down to the fewest that masks of these sizes can share: none.
    assert excess_of(table, Expectation(30.0, 0.0)).headroom == pytest.approx(-10 / 30)
    assert excess_of(OverlapCounts(100, 80, 70, 52), Expectation(56.0, 4.0)).headroom == pytest.approx(-4 / 6)
    assert excess_of(table, Expectation(30.0, 0.0)).deviations is None
