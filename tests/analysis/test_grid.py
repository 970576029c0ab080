"""Counts by row and column, against loops over coordinates."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.grid import MAX_LINES, Grid, Shape, count_grid, shape_of
from maskreg.mask import pack
from maskreg.mask.rounding import classes_of

SHAPES = [Shape(7, 9), Shape(1, 300), Shape(300, 1), Shape(40, 130), Shape(41, 130, 3, 4), Shape(2, 9000)]


def drawn(rng: np.random.Generator, n: int, kind: str) -> np.ndarray:
    codes = rng.normal(0, 0.02, n).astype(np.float32).view(np.uint32) >> 16
    if kind == "zeros":
        codes[rng.random(n) < 0.5] = 0
    if kind == "all":
        codes = rng.integers(0, 1 << 16, n, np.uint32)
    return codes.astype(np.uint16)


@given(st.sampled_from(SHAPES), st.sampled_from(["normal", "zeros", "all"]), st.integers(0, 99), st.integers(1, 5))
def test_counts_are_those_of_every_coordinate(kernels: str, shape: Shape, kind: str, seed: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    n = shape.height * shape.width
    codes, a, b = drawn(rng, n, kind), rng.random(n) < 0.4, rng.random(n) < 0.3
    grid = Grid(shape)
    cuts = sorted({0, n, *rng.integers(0, n + 1, pieces - 1).tolist()})
    for start, stop in pairwise(cuts):
        grid.add(count_grid(pack(a[start:stop]), pack(b[start:stop]), codes[start:stop], start, shape))
    row, column = np.divmod(np.arange(n), shape.width)
    rows = np.zeros((shape.rows, 512, 4), np.int64)
    columns = np.zeros((512, 4, shape.columns), np.int64)
    classes = classes_of(codes)
    np.add.at(rows, (row // shape.height_run, classes, a + 2 * b), 1)
    np.add.at(columns, (classes, a + 2 * b, column // shape.width_run), 1)
    assert np.array_equal(grid.rows, rows[:, grid.classes])
    assert np.array_equal(grid.columns, columns[grid.classes])
    assert rows.sum() == grid.rows.sum()


def test_a_matrix_is_the_last_dimension_by_all_others() -> None:
    assert shape_of((6, 4, 10)) == Shape(24, 10)
    assert [shape_of(shape) for shape in ((), (5,), (1, 5), (5, 1), (0, 5))] == [None] * 5


def test_many_lines_are_counted_in_runs() -> None:
    shape = shape_of((3 * MAX_LINES, MAX_LINES + 1))
    assert shape == Shape(3 * MAX_LINES, MAX_LINES + 1, 3, 2)
    assert shape is not None
    assert (shape.rows, shape.columns) == (MAX_LINES, MAX_LINES // 2 + 1)


@pytest.mark.parametrize("rows", [254, 255, 256, 600])
def test_columns_of_many_rows_are_counted(rows: int) -> None:
    shape = Shape(rows, 3)
    everything = pack(np.ones(rows * 3, bool))
    span = count_grid(everything, everything, np.full(rows * 3, 0x3F80, np.uint16), 0, shape)
    assert span.columns[:, 3].max(0).tolist() == [rows] * 3
