"""What a verdict says, and what keeps it from saying more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.chance import expect_uniform
from maskreg.analysis.evidence import (
    MATCHED,
    ROUNDING,
    STRIPED,
    OverlapFigures,
    figures_of,
    sums_from_classes,
    sums_from_counts,
)
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import HIDDEN, Asked, Outcome, Start, start_of_pair, verdict
from scripts.calibration.draws import INDEPENDENT, Pair
from tests.analysis.dense import grid_of, lined

ON_GRID = Asked(start="yes")


def figures_of_pair(pair: Pair) -> OverlapFigures:
    """Its figures, as ``compare`` counts them; the rounding nulls, which do not decide, are left out."""
    grid = grid_of(pair)
    return figures_of(sums_from_classes(grid.cells, "not asked", "not asked", lined(grid)))


Sizes = list[tuple[float, float]]
"""Sizes of steps in cells, and their odds."""


def odds_of(run: Sizes) -> npt.NDArray[np.float64]:
    odds = np.array([odd for _, odd in run]) + 1e-9
    shares: npt.NDArray[np.float64] = odds / odds.sum()
    return shares


def counted(table: OverlapCounts) -> OverlapFigures:
    return figures_of(sums_from_counts(table))


def one_class(both: int, chances: float = 0.4) -> OverlapFigures:
    """Masks of 4,000 of 10,000 coordinates of one class; 1,600 are expected in both."""
    cells = np.zeros((512, 4), np.int64)
    cells[240] = (2000 + both, 4000 - both, 4000 - both, both)
    return figures_of(sums_from_classes(cells, np.full(512, chances), np.full(512, chances)))


@pytest.mark.parametrize(("both", "outcome"), [(2500, Outcome.MORE), (700, Outcome.LESS), (1620, Outcome.OPEN)])
def test_there_are_three_answers_and_no_answer(both: int, outcome: Outcome) -> None:
    result = verdict(one_class(both), asked=ON_GRID)
    assert (result.outcome, bool(result.reason)) == (outcome, outcome is Outcome.OPEN)


def test_a_difference_too_small_to_matter_is_no_more() -> None:
    # 100 times as many coordinates, of which .3 % of the headroom is 36 standard deviations... and still nothing.
    table = OverlapCounts(100_000_000, 40_000_000, 40_000_000, 16_072_000)
    assert 20 < (table.both - 16_000_000) / expect_uniform(table).variance ** 0.5 < 40
    result = verdict(counted(table))
    assert result.outcome is Outcome.SAME
    assert verdict(counted(table), asked=Asked(smallest=0.001)).outcome is Outcome.MORE


def test_random_within_exponents_decides() -> None:
    # All that the masks share is in one class, which both fill: nothing is left to chance there.
    strata = np.zeros((512, 4), np.int64)
    strata[200], strata[250] = (0, 0, 0, 1000), (9000, 0, 0, 0)
    result = verdict(figures_of(sums_from_classes(strata, np.full(512, 0.1), np.full(512, 0.1))))
    assert (result.outcome, result.null) == (Outcome.OPEN, MATCHED)
    assert verdict(counted(OverlapCounts(10_000, 1000, 1000, 900))).outcome is Outcome.MORE


def test_noise_that_gives_other_numbers_by_exponent_does_not_decide() -> None:
    # Half as many in either class as noise gives in one: it expects more than both masks could share there.
    strata = np.zeros((512, 4), np.int64)
    strata[200], strata[250] = (700, 100, 100, 100), (700, 100, 100, 100)
    chances = np.zeros(512)
    chances[200] = 0.5
    figures = figures_of(sums_from_classes(strata, chances, chances))
    assert (figures.nulls[ROUNDING].expected or 0) > figures.counts.both
    assert verdict(figures, asked=ON_GRID).outcome is Outcome.MORE


@pytest.mark.parametrize("table", [OverlapCounts(), OverlapCounts(10, 0, 4, 0), OverlapCounts(10, 10, 4, 4)])
def test_masks_that_can_share_one_number_only_tell_nothing(table: OverlapCounts) -> None:
    result = verdict(counted(table))
    assert result.outcome is Outcome.OPEN
    assert result.reason


def test_a_few_coordinates_are_an_anecdote() -> None:
    # One in 500,000 such pairs of masks shares a coordinate, which is not worth a sentence.
    assert verdict(counted(OverlapCounts(1_000_000, 1, 2, 1))).outcome is Outcome.OPEN


def test_a_copy_a_parent_or_a_child_has_no_verdict() -> None:
    result = verdict(one_class(2500), asked=Asked(relation="A and B are the same artifact"))
    assert (result.outcome, result.null) == (Outcome.RELATED, "")


def test_what_a_start_off_the_grid_explains_is_not_called_more() -> None:
    figures = figures_of_pair(INDEPENDENT["rounding, off the grid, 1e-6"](np.random.default_rng(5)))
    assert (figures.nulls[STRIPED].headroom or 0) > 0.2
    assert (figures.nulls[STRIPED].deviations or 0) > 10
    result = verdict(figures)
    assert result.outcome is Outcome.OPEN
    assert verdict(figures, asked=ON_GRID).outcome is Outcome.MORE
    assert start_of_pair("unknown", "yes") == "yes"
    assert start_of_pair("unknown", "no") == "no"


@given(*[st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5)] * 2)
def test_no_sizes_of_steps_let_the_start_explain_more_than_half(a: Sizes, b: Sizes) -> None:
    """Each run has steps of several sizes and odds; the start is anywhere in the cell; up and down are even odds."""
    places = (np.arange(2000) + 0.5) / 2000
    ends = places, 1 - places
    sides = [[np.less.outer(at, [size for size, _ in run]) @ odds_of(run) for at in ends] for run in (a, b)]
    p, q = (float(np.mean(up)) for up, _ in sides)
    both = float(np.mean(sum(sides[0]) * sum(sides[1])) / 4)
    least, most = max(0.0, p + q - 1), min(p, q)
    near = 2e-3
    assert HIDDEN * (p * q + least) - near <= both <= HIDDEN * (p * q + most) + near


def test_what_exceeds_all_that_the_start_explains_is_more_or_less() -> None:
    # 1,600 are expected of at most 4,000 and at least 0.
    for both, outcome in ((2780, Outcome.OPEN), (3000, Outcome.MORE), (820, Outcome.OPEN), (600, Outcome.LESS)):
        result = verdict(one_class(both))
        assert result.outcome is outcome
        assert (result.p is None) == (outcome is Outcome.OPEN)


def test_what_rows_and_columns_explain_is_not_called_more() -> None:
    # Both masks move in the same half of the rows, and there independently.
    rng = np.random.default_rng(3)
    codes = INDEPENDENT["uniform, .3 x .2"](rng).codes
    busy = (np.arange(len(codes)) % 2 == 0)[:, None]
    a, b = ((rng.random(codes.shape) < rate) & busy for rate in (0.6, 0.4))
    figures = figures_of_pair(Pair(codes, a, b))
    assert (figures.nulls[MATCHED].headroom or 0) > 0.4
    assert abs(figures.nulls[STRIPED].headroom or 9) < 0.02
    assert verdict(figures, asked=ON_GRID).outcome is not Outcome.MORE


@pytest.mark.parametrize("name", INDEPENDENT)
def test_updates_that_know_nothing_of_each_other_are_not_called_more_or_less(name: str) -> None:
    start: Start = "no" if "off the grid" in name else "yes"
    for seed in range(3):
        pair = INDEPENDENT[name](np.random.default_rng([seed, 1]))
        result = verdict(figures_of_pair(pair), asked=Asked(start=start))
        assert result.outcome in (Outcome.OPEN, Outcome.SAME)
