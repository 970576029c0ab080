"""Counts by row and column, against loops over coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.analysis.grid import MAX_LINES, Grid, Lines, Shape, count_grid, shape_of
from maskreg.mask import pack
from maskreg.mask.rounding import classes_of

# Narrow ones lie side by side in a tile of 1,024 columns. Eight of its rows are counted together, and 248 before
# counters are full.
SHAPES = [
    *(
        Shape(7, 9),
        Shape(1, 300),
        Shape(300, 1),
        Shape(40, 130),
        Shape(41, 130, 3, 4),
        Shape(2, 4500),
        Shape(4500, 2, 7),
    ),
    *(Shape(9, 1024), Shape(5, 1025), Shape(3, 2048, 2, 3), Shape(70, 64), Shape(600, 20), Shape(37, 511)),
]
KINDS = ["normal", "zeros", "all", "whole"]


def drawn(rng: np.random.Generator, n: int, kind: str) -> np.ndarray:
    codes = rng.normal(0, 0.02, n).astype(np.float32).view(np.uint32) >> 16
    if kind == "zeros":
        codes[rng.random(n) < 0.5] = 0
    if kind == "whole":
        codes &= 0xFF80
    if kind == "all":
        codes = rng.integers(0, 1 << 16, n, np.uint32)
    return codes.astype(np.uint16)


def tables(lines: Lines) -> np.ndarray:
    """2x2 tables of every line, ``[lines, k, 4]``: every count is a sum of its own."""
    size = 4 * lines.classes.size
    return lines.sums(np.eye(size).reshape(-1, 4, size)).reshape(len(lines), -1, 4)


def dense(line: np.ndarray, count: int, keys: np.ndarray, kinds: int) -> np.ndarray:
    """The same, from every coordinate's line, and its class and cell."""
    return np.bincount(line * 4 * kinds + keys, minlength=count * 4 * kinds).reshape(count, kinds, 4)


def cut(n: int, pieces: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    return pairwise(sorted({0, n, *rng.integers(0, n + 1, pieces - 1).tolist()}))


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.sampled_from(KINDS), st.integers(0, 99), st.integers(1, 5))
def test_counts_are_those_of_every_coordinate(kernels: str, shape: Shape, kind: str, seed: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    n = shape.height * shape.width
    codes, a, b = drawn(rng, n, kind), rng.random(n) < 0.4, rng.random(n) < 0.3
    grid, unclassed = Grid(shape), Grid(shape)
    for start, stop in cut(n, pieces, rng):
        bits = pack(a[start:stop]), pack(b[start:stop])
        grid.add(count_grid(*bits, codes[start:stop], stop - start, start, shape))
        unclassed.add(count_grid(*bits, None, stop - start, start, shape))
    row, column = np.divmod(np.arange(n), shape.width)
    row, column = row // shape.height_run, column // shape.width_run
    classes, slots = np.unique(classes_of(codes), return_inverse=True)
    assert np.array_equal(grid.classes, classes)
    keys = 4 * slots + a + 2 * b
    assert np.array_equal(grid.cells[classes], np.bincount(keys, minlength=4 * classes.size).reshape(-1, 4))
    assert grid.cells.sum() == n
    assert np.array_equal(tables(grid.rows), dense(row, shape.rows, keys, classes.size))
    assert np.array_equal(tables(grid.columns), dense(column, shape.columns, keys, classes.size))
    assert np.array_equal(tables(unclassed.rows), dense(row, shape.rows, a + 2 * b, 1))
    assert np.array_equal(tables(unclassed.columns), dense(column, shape.columns, a + 2 * b, 1))


@pytest.mark.parametrize("most", [1, 50, 999, 1 << 19])
def test_points_are_coordinates_of_all_rows_and_columns(
    kernels: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("maskreg.analysis.grid.MOST_POINTS", most)
    rng, shape = np.random.default_rng(most), Shape(41, 130, 3, 4)
    n = shape.height * shape.width
    codes, nothing = drawn(rng, n, "normal"), np.zeros(n, bool)
    grid, unclassed = Grid(shape), Grid(shape)
    for start, stop in reversed(list(cut(n, 5, rng))):
        bits = pack(nothing[start:stop])
        grid.add(count_grid(bits, bits, codes[start:stop], stop - start, start, shape))
        unclassed.add(count_grid(bits, bits, None, stop - start, start, shape))
    chosen = np.arange(0, n, shape.step)
    assert chosen.size <= most and grid.share == pytest.approx(chosen.size / n)
    assert shape.step == 1 or np.unique(chosen[: shape.width] % shape.width).size == min(chosen.size, shape.width)
    points = grid.points
    assert np.array_equal(grid.classes[points.classes], classes_of(codes[chosen]))
    assert np.array_equal(points.rows, chosen // shape.width // 3)
    assert np.array_equal(points.columns, chosen % shape.width // 4)
    assert not unclassed.points.classes.any()


def test_a_matrix_is_the_last_dimension_by_all_others() -> None:
    assert shape_of((6, 4, 10)) == Shape(24, 10)
    assert [shape_of(shape) for shape in ((), (5,), (1, 5), (5, 1), (0, 5))] == [None] * 5


def test_many_lines_are_counted_in_runs() -> None:
    shape = shape_of((3 * MAX_LINES, MAX_LINES + 1))
    assert shape == Shape(3 * MAX_LINES, MAX_LINES + 1, 3, 2)
    assert (shape.rows, shape.columns) == (MAX_LINES, MAX_LINES // 2 + 1)


@pytest.mark.parametrize("listed", [False, True])
def test_lines_of_many_classes_are_counted_in_pairs(
    kernels: str, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    monkeypatch.setattr("maskreg.analysis.grid.MAX_COUNTS", 4 * 11 * 3)
    rng = np.random.default_rng(5)
    line, number, cell = rng.integers(0, 11, 4000), rng.integers(0, 7, 4000), rng.integers(0, 4, 4000)
    lines = Lines(11, 4000)
    for first in range(0, 4000, 500):
        part = slice(first, first + 500)
        # One class more each time: 11 lines of 3 classes fit, then 6 of 5, then 3.
        present = np.unique(number[part] % (1 + first // 500))
        lines.make_room(present)
        keys = 4 * (number[part] % (1 + first // 500)) + cell[part]
        if listed:
            lines.add_listed(line[part].astype(np.uint32), keys.astype(np.uint16))
            continue
        for own in present.tolist():
            chosen = keys // 4 == own
            table = np.zeros((4, 11), np.uint32)
            np.add.at(table, (keys[chosen] % 4, line[part][chosen]), 1)
            lines.add(own, 0, table)
    keys = 4 * (number % (1 + np.arange(4000) // 500)) + cell
    assert len(lines) == 3
    assert np.array_equal(tables(lines), dense(line // 4, 3, keys, 7))


def test_counts_of_long_lines_have_room() -> None:
    lines = Lines(4, 1 << 17)
    lines.make_room(np.array([0]))
    for _ in range(2):
        lines.add(0, 1, np.full((4, 2), 40_000, np.uint32))
    assert tables(lines)[:, 0, 0].tolist() == [0, 80_000, 80_000, 0]
