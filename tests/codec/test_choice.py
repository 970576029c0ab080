"""Sparse blocks are tried where few coordinates move, and tokens too where rows or columns say more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec import FLAT, Grid
from maskreg.codec.layout import ROWS, SPARSE, Head
from maskreg.codec.movers import LOGARITHM_BITS, find_movers
from maskreg.codec.sparse import count_movers
from maskreg.codec.step2 import Choice, Step2, choose, count_differing, count_lines, gain_of_lines
from tests.codec.samples import Codes, moved
from tests.kernels import agreed

LARGE = 600_000

SIZES = st.sampled_from([1, 63, 64, 65, 1023, 1024, 1025, 5000])


def embedding(rows: int, width: int, share: float) -> tuple[Codes, Codes]:
    """A matrix of which a share of the rows moves, and the others not at all."""
    source, target = moved(rows * width, 0.5, 1)
    still = np.random.default_rng(2).random(rows) >= share
    target.reshape(rows, width)[still] = source.reshape(rows, width)[still]
    return source, target


def tried(choice: Choice) -> tuple[bool, bool, bool]:
    """Whether a sparse block is tried, whether tokens are, and whether scales pay."""
    return choice.movers is not None, choice.tokens, choice.lines


@pytest.mark.parametrize(
    ("n", "share", "sparse", "tokens"),
    [
        (LARGE, 0.01, True, False),
        (LARGE, 0.06, False, True),
        (LARGE, 0.5, False, True),
        (10_000, 0.01, True, False),
        (10_000, 0.06, True, False),
        (10_000, 0.5, False, True),
        (1_025, 1.0, False, True),
        (1_024, 1.0, True, True),
        (1, 1.0, True, True),
    ],
)
def test_by_how_many_move(n: int, share: float, sparse: bool, tokens: bool) -> None:
    source, target = moved(n, share, 3, farthest=1)
    assert tried(choose(source, target, FLAT)) == (sparse, tokens, False)


def test_rows_that_do_not_move_are_passed_over() -> None:
    source, target = embedding(2_000, 300, 0.02)
    choice = choose(source, target, Grid(300, 0))
    assert tried(choice) == (True, True, True)
    assert choice.rows is not None
    assert choice.rows.tolist() == (source != target).reshape(2_000, 300).any(axis=1).tolist()
    block = Step2().encode(source, target, Grid(300, 0))
    assert Head.read(block).kind == ROWS
    assert len(block) < 0.9 * len(Step2().encode(source, target))


@given(SIZES, st.integers(1, 1025), st.integers(0, 2000), st.integers(0, 1 << 32))
def test_what_differs_is_counted_in_pieces(kernels: str, n: int, length: int, apart: int, seed: int) -> None:
    source, target = moved(n, 0.3, seed)
    starts = range(0, n - length + 1, length + apart)
    expected = sum(np.count_nonzero(source[at : at + length] != target[at : at + length]) for at in starts)
    assert count_differing(source, target, length, length + apart) == expected


@given(SIZES, st.sampled_from([0, 0.01, 1]), st.integers(0, 1 << 32))
def test_movers_are_counted_by_exponent(kernels: str, n: int, share: float, seed: int) -> None:
    source, target = moved(n, share, seed, literals=0.3 * share)
    far = (np.abs(target.astype(int) - source) > 1) | (source >> 15 != target >> 15)
    expected = [
        np.bincount(source[own] >> 7 & 0xFF, minlength=256) for own in (source == source, source != target, far)
    ]
    counts = count_movers(source, find_movers(source, target))
    assert np.array_equal(counts[:3], expected)
    length = np.abs((target & 0x7FFF).astype(int) - (source & 0x7FFF))[far]
    longer = np.where((source ^ target)[far] >> 15, 15, np.log2(np.maximum(length, 1)).astype(int))
    binade, tops = np.minimum((source[far] >> 7 & 0xFF) + longer, 255), (longer < 15) & (length >> longer - 1 & 1 > 0)
    assert np.array_equal(counts[3:], [np.bincount(binade, minlength=256), np.bincount(binade[tops], minlength=256)])


@pytest.mark.parametrize(("before", "after"), [(0x7FFF, 0x8000), (0x8000, 0x7FFF), (0xFFFF, 0), (0, 0xFFFF)])
def test_a_change_of_sign_between_neighboring_numbers_is_far(kernels: str, before: int, after: int) -> None:
    source = np.full(5000, before, np.uint16)
    target = source.copy()
    target[[7, 4000]] = after
    block = Step2().encode(source, target)
    assert Head.read(block).kind == SPARSE
    assert np.array_equal(Step2().decode(source, block), target)
    counts = count_movers(source, find_movers(source, target))
    assert counts[2].sum() == 2


@given(st.sampled_from([1, 63, 64, 65, 1000, 4097]), st.integers(1, 200), st.integers(0, 1 << 32))
def test_movers_are_counted_by_row_and_column(kernels: str, n: int, width: int, seed: int) -> None:
    source, target = moved(n, 0.2, seed)
    grid = Grid(width, seed % width)
    rows, columns = count_lines(n, find_movers(source, target), grid)
    matrix = np.zeros((rows.size, width), np.int64)
    matrix.reshape(-1)[grid.column : grid.column + n] = source != target
    assert np.array_equal(rows, matrix.sum(axis=1))
    assert np.array_equal(columns, matrix.sum(axis=0))


def test_exponents_of_a_large_block_are_estimated() -> None:
    source, target = moved(1 << 20, 0.01, 6)
    counts = np.array(agreed(lambda: [*count_movers(source, find_movers(source, target))]))
    exact = np.bincount(source >> 7 & 0xFF, minlength=256)
    common = exact > 20_000
    assert (np.abs(counts[0] - exact)[common] < 0.05 * exact[common]).all()


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=70).filter(any))
def test_what_lines_say_is_the_same_in_every_build(movers: list[int]) -> None:
    counts = np.array(movers, np.int64)
    (gain,) = agreed(lambda: [gain_of_lines(counts)])
    used = counts[counts > 0]
    exact = float(used @ np.log2(used * (counts.size / used.sum())))
    assert abs(gain / (1 << LOGARITHM_BITS) - exact) <= 2e-5 * used.sum()
