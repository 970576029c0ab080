"""Figures from four counts: against dense masks, symmetric, defined at the edges, and as in the literature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.overlap import Overlap, OverlapCounts, overlap_of


@st.composite
def tables(draw: st.DrawFn) -> OverlapCounts:
    cells = [draw(st.integers(0, 60)) for _ in range(4)]
    return OverlapCounts(sum(cells), cells[1] + cells[3], cells[2] + cells[3], cells[3])


def dense(table: OverlapCounts) -> tuple[np.ndarray, np.ndarray]:
    """Two masks with these counts."""
    a, b = np.zeros(table.numel, bool), np.zeros(table.numel, bool)
    a[: table.a] = True
    b[table.a - table.both : table.a - table.both + table.b] = True
    return a, b


@given(tables())
def test_figures_are_those_of_dense_masks(table: OverlapCounts) -> None:
    a, b = dense(table)
    found = overlap_of(table)
    n, both, either = a.size, (a & b).sum(), (a | b).sum()
    assert (a.sum(), b.sum(), both) == (table.a, table.b, table.both)
    if a.any() and b.any():
        assert found.coverage_a == pytest.approx(b[a].mean())
        assert found.coverage_b == pytest.approx(a[b].mean())
        assert found.lift == pytest.approx(both / n / (a.mean() * b.mean()))
        assert found.lift_max == pytest.approx(1 / max(a.mean(), b.mean()))
        assert found.lift_share == pytest.approx(both / min(a.sum(), b.sum()))
        p, q = a.mean(), b.mean()
        assert found.jaccard == pytest.approx(both / either)
        assert found.jaccard_random == pytest.approx(p * q / (p + q - p * q))
    if 0 < a.sum() < n and 0 < b.sum() < n:
        assert found.phi == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-12)
        most, least = np.sort(a)[::-1], np.sort(b)[::-1]
        assert found.phi_max == pytest.approx(np.corrcoef(most, least)[0, 1])
    if (a & ~b).any() and (b & ~a).any():
        assert found.odds_ratio == pytest.approx(both * (~a & ~b).sum() / ((a & ~b).sum() * (b & ~a).sum()))


def test_what_has_no_denominator_has_no_value() -> None:
    nothing = overlap_of(OverlapCounts())
    assert all(value is None for value in vars(nothing).values())
    empty = overlap_of(OverlapCounts(10, 0, 4, 0))
    assert (empty.density_a, empty.coverage_a, empty.coverage_b, empty.lift, empty.phi) == (0, None, 0, None, None)
    assert (empty.jaccard, empty.lift_max, empty.lift_share) == (0, 2.5, None)
    full = overlap_of(OverlapCounts(10, 10, 4, 4))
    assert (full.coverage_a, full.lift, full.lift_max, full.phi, full.phi_max) == (0.4, 1, 1, None, None)


@pytest.mark.parametrize("counts", [(3, 4, 1, 1), (10, 4, 4, 5), (10, 8, 8, 5), (10, -1, 3, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError):
        OverlapCounts(*counts)


ROWS = {
    "DSSU DeepScaleR RLVR vs DS-Qwen OPD": (22.11, 17.50, 53.21, 67.20, 3.04, 42.2, 10.8, 0.50),
    "DSSU Qwen2.5-VL GRPO vs OPD": (13.44, 33.28, 73.53, 29.69, 2.21, 26.8, 10.6, 0.34),
    "DSSU OPD(DeepScaleR-T) vs OPD(JustRL-T)": (17.50, 29.57, 80.17, 47.45, 2.71, 42.5, 12.4, 0.51),
    "SUB seed 42 vs 123": (36.7, 36.7, 60.5, 60.6, 1.65, 43.4, 22.5, 0.38),
    "SUB data Tulu vs PRIME": (36.7, 14.6, 26.7, 67.1, 1.83, 23.6, 11.7, 0.26),
    "SUB DPO vs PRIME": (12.9, 23.0, 59.1, 33.2, 2.57, 27.0, 9.0, 0.33),
}
"""Published: p, q, o_A, o_B, lift, Jaccard, its random baseline (percent), phi; arXiv 2606.13657 and 2505.11711."""


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_published_rows_follow_from_densities_and_one_coverage(row: tuple[float, ...]) -> None:
    p, q, covered, *expected = row
    n = 10**8
    a, b = round(p / 100 * n), round(q / 100 * n)
    found: Overlap = overlap_of(OverlapCounts(n, a, b, round(a * covered / 100)))
    figures = (found.coverage_b, found.lift, found.jaccard, found.jaccard_random, found.phi)
    values = [math.nan if value is None else value for value in figures]
    # One unit in the last printed digit of what goes in and of what comes out.
    for value, published, near in zip(values, expected, (0.2, 0.01, 0.15, 0.1, 0.01), strict=True):
        scaled = 100 * value if published > 5 else value
        assert scaled == pytest.approx(published, abs=near)
