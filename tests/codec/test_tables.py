"""Frequency tables: they sum to 4,096, and every token that was counted can be coded."""

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.bits import Reader, pack_flags
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.tables import (
    LOGS,
    MAX_TABLES,
    Tables,
    build_tables,
    pack_tables,
    plain_window,
    unpack_tables,
)
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, MIDDLE
from maskreg.native import NUMPY, using

Counts = npt.NDArray[np.int64]

KNOWN = [*range(MIDDLE - FARTHEST, MIDDLE + FARTHEST + 1), LITERAL]


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
def test_every_kernel_finds_the_same_window(kernels: str, edge: int, opposite: int, seed: int, largest: float) -> None:
    counts, lowest, highest = np.zeros((256, TOKENS), np.int64), min(edge, opposite), max(edge, opposite)
    counts[lowest : highest + 1] = counted(highest + 1 - lowest, seed, largest)
    for classes in (2, 16, 33):
        with using(NUMPY):
            expected = plain_window(counts, classes)
        assert plain_window(counts, classes) == expected


@given(st.sampled_from([(1, 1), (7, 3), (16, 1), (32, 1), (128, 8)]), st.integers(0, 1 << 32), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_every_kernel_builds_the_same_tables(kernels: str, shape: tuple[int, int], seed: int, size: int) -> None:
    counts = counted(shape[0], seed, [2, 1e2, 1e4, 1e6][size])
    # Some cells alike, so that losses are equal.
    counts[len(counts) // 2 :: 3] = counts[0]
    before = counts.copy()
    assert_same_tables(counts, shape[1])
    assert np.array_equal(counts, before)


def assert_same_tables(counts: Counts, wide: int) -> None:
    """Tables are those that NumPy builds."""
    with using(NUMPY):
        expected, expected_bits = build_tables(counts, wide)
    tables, bits = build_tables(counts, wide)
    assert bits == expected_bits
    assert np.array_equal(tables.of_cell, expected.of_cell)
    assert np.array_equal(tables.freqs, expected.freqs)


def test_there_are_never_too_many_tables() -> None:
    counts = np.zeros((256, TOKENS), np.int64)
    for cell in range(256):
        counts[cell, KNOWN[cell % len(KNOWN)]] = 1_000_000
        counts[cell, KNOWN[cell // len(KNOWN)]] += 500_000
    tables, _ = build_tables(counts, 8)
    assert len(tables.freqs) == MAX_TABLES


def _packed(of_cell: list[int], rows: list[dict[int, int]]) -> Reader:
    freqs = np.zeros((len(rows), TOKENS), np.uint16)
    for row, entries in enumerate(rows):
        for token, freq in entries.items():
            freqs[row, token] = freq
    return Reader(np.frombuffer(pack_flags(pack_tables(Tables(np.array(of_cell, np.uint8), freqs))), np.uint8))


@pytest.mark.parametrize(
    ("of_cell", "rows"),
    [
        pytest.param([0], [{MIDDLE: 4_095}], id="too few slots"),
        pytest.param([0], [{MIDDLE: 4_096, LITERAL: 1}], id="too many slots"),
        pytest.param([0], [{MIDDLE: 4_000, 62: 96}], id="a token that is none"),
        pytest.param([0], [{4: 4_096}], id="a step too far"),
        pytest.param([1], [{MIDDLE: 4_096}], id="a table that is not there"),
        pytest.param([31], [{MIDDLE: 4_096}], id="the last table there can be"),
    ],
)
def test_invalid_tables_are_refused(of_cell: list[int], rows: list[dict[int, int]]) -> None:
    assert unpack_tables(_packed(of_cell, rows), len(of_cell), len(rows)) is None
    assert unpack_tables(_packed([0], [{MIDDLE: 4_096}]), 1, 1) is not None
