"""Clustered standard errors and the null of rows and columns, against dense formulas."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.analysis.evidence import MATCHED, STRIPED, figures_of, sums_from_classes
from maskreg.mask.rounding import classes_of
from scripts.calibration.draws import INDEPENDENT, Pair, striped, to_codes
from tests.analysis import dense
from tests.analysis.dense import grid_of, lined
from tests.kernels import agreed


def rates(masks: Pair) -> tuple[np.ndarray, np.ndarray]:
    classes = classes_of(masks.codes.reshape(-1)).reshape(masks.codes.shape)
    p, q = np.zeros(classes.shape), np.zeros(classes.shape)
    for number in np.unique(classes):
        inside = classes == number
        p[inside], q[inside] = masks.a[inside].mean(), masks.b[inside].mean()
    return p, q


def part(masks: Pair, rows: slice, columns: slice) -> Pair:
    codes, a, b = masks
    return Pair(codes[rows, columns].copy(), a[rows, columns].copy(), b[rows, columns].copy())


@pytest.mark.parametrize("name", [*(name for name in INDEPENDENT if name.startswith("scaled")), "striped, sigma .6"])
def test_what_rows_and_columns_add_is_what_a_dense_fit_adds(name: str) -> None:
    masks = part(INDEPENDENT[name](np.random.default_rng(3)), slice(0, 160), slice(0, 90))
    p, q = rates(masks)
    a, b = (dense.fitted(moved, masks.codes).chances for moved in (masks.a, masks.b))
    expected = (a - p) * (b - q)
    added = lined(grid_of(masks))[1]
    assert added.added == pytest.approx(expected.sum(), abs=5e-4 * (a * b).sum())
    assert added.by_row == pytest.approx(expected.sum(1), abs=0.2)
    assert added.by_column == pytest.approx(expected.sum(0), abs=0.2)


def test_all_kernels_fit_the_same() -> None:
    grid = grid_of(part(striped(0.5)(np.random.default_rng(4)), slice(90), slice(140)))
    agreed(lambda: [(added := lined(grid)[1]).by_row, added.by_column])


def test_a_part_of_a_large_tensor_tells_what_all_of_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = INDEPENDENT["scaled, updates grow with rows and columns"](np.random.default_rng(4))
    whole = lined(grid_of(masks))[1]
    monkeypatch.setattr("maskreg.analysis.grid.MOST_POINTS", masks.codes.size // 4)
    grid = grid_of(masks)
    assert 0.15 < grid.share < 0.25
    assert lined(grid)[1].added == pytest.approx(whole.added, rel=0.02)


def test_nothing_is_expected_in_rows_that_never_move() -> None:
    rng = np.random.default_rng(6)
    codes = to_codes(rng.normal(0, 0.02, (300, 200)))
    still = rng.random((300, 1)) < 0.6
    a, b = ((rng.random(codes.shape) < 0.4) & ~still for _ in range(2))
    grid = grid_of(Pair(codes, a, b))
    figures = figures_of(sums_from_classes(grid.cells, "x", "x", lined(grid)))
    assert (figures.nulls[MATCHED].headroom or 0) > 0.25
    assert figures.nulls[STRIPED].expected == pytest.approx(a.sum() * b.sum() / (~still).sum() / 200, rel=5e-3)
