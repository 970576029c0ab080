"""Frequency tables: they sum to 4,096, and every token that was counted can be coded."""

from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.tables import LOGS, MAX_TABLES, SLOTS, build_tables, plain_window
from maskreg.codec.ulp_steps import LITERAL, MIDDLE, TOKENS
from tests.kernels import agreed

Counts = npt.NDArray[np.int64]

KNOWN = [*range(5, 60), LITERAL]


def counted(cells: int, seed: int, largest: float) -> Counts:
    """Counts of many sizes; some cells and many tokens have none."""
    draw = np.random.default_rng(seed)
    counts = np.zeros((cells, TOKENS), np.int64)
    counts[:, KNOWN] = np.exp(draw.uniform(-4, np.log(largest), (cells, len(KNOWN)))).astype(np.int64)
    counts[draw.random(cells) < 0.2] = 0
    counts[draw.integers(cells), MIDDLE] += 1
    return counts


@given(st.sampled_from([(16, 1), (32, 1), (128, 8), (256, 8)]), st.integers(0, 1 << 32), st.sampled_from([2, 1e2, 1e6]))
@settings(max_examples=40)
def test_every_counted_token_can_be_coded(shape: tuple[int, int], seed: int, largest: float) -> None:
    cells, wide = shape
    counts = counted(cells, seed, largest)
    tables, _ = build_tables(counts, wide)
    assert 1 <= len(tables.freqs) <= MAX_TABLES
    assert (tables.freqs.sum(axis=1) == SLOTS).all()
    assert tables.of_cell.max() < len(tables.freqs)
    mine = tables.freqs[tables.of_cell]
    # What a table lacks is written as a literal.
    assert ((mine > 0) | (mine[:, [LITERAL]] > 0))[counts > 0].all()


def test_logarithms_are_the_nearest_multiples_on_every_machine() -> None:
    with localcontext(prec=40):
        exact = [(1 + Decimal(step) / 4_096).ln() / Decimal(2).ln() * 2**40 for step in range(4_097)]
        assert [int(log * 2**40) for log in LOGS] == [int(log.to_integral_value()) for log in exact]


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 1 << 32), st.sampled_from([2, 1e2, 1e4, 1e6]))
@settings(max_examples=20, deadline=None)
def test_every_kernel_finds_the_same_window(edge: int, opposite: int, seed: int, largest: float) -> None:
    counts, lowest, highest = np.zeros((256, TOKENS), np.int64), min(edge, opposite), max(edge, opposite)
    counts[lowest : highest + 1] = counted(highest + 1 - lowest, seed, largest)
    for classes in (2, 16, 33):
        agreed(partial(plain_window, counts, classes))


@given(st.sampled_from([(1, 1), (7, 3), (16, 1), (32, 1), (128, 8)]), st.integers(0, 1 << 32), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_every_kernel_builds_the_same_tables(shape: tuple[int, int], seed: int, size: int) -> None:
    counts = counted(shape[0], seed, [2, 1e2, 1e4, 1e6][size])
    # Some cells alike, so that losses are equal.
    counts[len(counts) // 2 :: 3] = counts[0]
    before = counts.copy()

    def compute() -> list[npt.NDArray[np.generic] | float]:
        tables, bits = build_tables(counts, shape[1])
        return [tables.of_cell, tables.freqs, bits]

    agreed(compute)
    assert np.array_equal(counts, before)


def test_there_are_never_too_many_tables() -> None:
    counts = np.zeros((256, TOKENS), np.int64)
    for cell in range(256):
        counts[cell, KNOWN[cell % len(KNOWN)]] = 1_000_000
        counts[cell, KNOWN[cell // len(KNOWN)]] += 500_000
    tables, _ = build_tables(counts, 8)
    assert len(tables.freqs) == MAX_TABLES
