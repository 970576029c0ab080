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
    bits_of,
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


def window(counts: Counts, first: int) -> Counts:
    """Counts of 16 classes: the first is of this exponent and all below, the last of all that are left."""
    classes = counts[first : first + 16].copy()
    classes[0] += counts[:first].sum(axis=0)
    classes[-1] += counts[first + 16 :].sum(axis=0)
    return classes


@pytest.mark.parametrize(("lowest", "highest"), [(90, 126), (100, 114), (120, 120), (0, 30), (3, 5), (225, 254)])
def test_the_window_is_where_tokens_take_least(lowest: int, highest: int) -> None:
    counts = np.zeros((256, TOKENS), np.int64)
    counts[lowest : highest + 1] = counted(highest + 1 - lowest, lowest, 1e4)
    counts[[lowest, highest], MIDDLE] += 1
    first, bits = plain_window(counts, 16)
    assert 0 <= first <= 240
    # A window of one class for each cell: what tokens take does not depend on how its cells are numbered.
    others = range(max(0, lowest - 1), max(1, highest - 13))
    assert all(bits <= sum(one_table(row) for row in window(counts, other)) + 1e-6 for other in others)
    assert bits == pytest.approx(sum(one_table(row) for row in window(counts, first)))


def one_table(row: npt.NDArray[np.int64]) -> float:
    """Bits of tokens that have a table of their own."""
    return float(bits_of(row[None])[0])


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 1 << 32), st.sampled_from([2, 1e2, 1e4, 1e6]))
@settings(max_examples=20, deadline=None)
def test_every_kernel_finds_the_same_window(kernels: str, edge: int, opposite: int, seed: int, largest: float) -> None:
    counts, lowest, highest = np.zeros((256, TOKENS), np.int64), min(edge, opposite), max(edge, opposite)
    counts[lowest : highest + 1] = counted(highest + 1 - lowest, seed, largest)
    for classes in (2, 16, 33):
        with using(NUMPY):
            expected = plain_window(counts, classes)
        assert plain_window(counts, classes) == expected


def test_bits_are_the_entropy_and_the_gamma_codes() -> None:
    # 6 of 8 and 2 of 8; frequencies 3,072 and 1,024 take 23 and 21 bits, and 17 say where the table begins and ends.
    counts = np.zeros((2, TOKENS), np.int64)
    counts[0, 32:34] = 6, 2
    assert bits_of(counts).tolist() == pytest.approx([8 * 3 - 6 * np.log2(6) - 2 + 23 + 21 + 17, 0])


@given(st.sampled_from([(1, 1), (7, 3), (16, 1), (32, 1), (128, 8)]), st.integers(0, 1 << 32), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_every_kernel_builds_the_same_tables(kernels: str, shape: tuple[int, int], seed: int, size: int) -> None:
    counts = counted(shape[0], seed, [2, 1e2, 1e4, 1e6][size])
    # Some cells alike, so that losses are equal.
    counts[len(counts) // 2 :: 3] = counts[0]
    before = counts.copy()
    assert_same_tables(counts, shape[1])
    assert np.array_equal(counts, before)


@pytest.mark.parametrize("used", [8, 9, 65, 120])
def test_every_kernel_builds_the_same_tables_of_different_cells(kernels: str, used: int) -> None:
    counts = np.zeros((128, TOKENS), np.int64)
    for cell in range(used):
        counts[-1 - cell, KNOWN[cell % len(KNOWN)]] = 1_000_000 + cell
        counts[-1 - cell, KNOWN[cell // len(KNOWN)]] += 500_000
    assert_same_tables(counts, 8)


def assert_same_tables(counts: Counts, wide: int) -> None:
    """Tables are those that NumPy builds."""
    with using(NUMPY):
        expected, expected_bits = build_tables(counts, wide)
    tables, bits = build_tables(counts, wide)
    assert bits == expected_bits
    assert np.array_equal(tables.of_cell, expected.of_cell)
    assert np.array_equal(tables.freqs, expected.freqs)


def test_cells_share_a_table_when_they_are_alike() -> None:
    counts = np.zeros((16, TOKENS), np.int64)
    counts[:8, MIDDLE - 1 : MIDDLE + 2] = [100_000, 800_000, 100_000]
    counts[8:, MIDDLE - 1 : MIDDLE + 2] = [300_000, 400_000, 300_000]
    tables, bits = build_tables(counts, 1)
    assert tables.of_cell.tolist() == [0] * 8 + [1] * 8
    shares = counts[[0, 8]] / 1_000_000
    entropy = -8_000_000 * float((shares * np.log2(np.maximum(shares, 1e-9))).sum())
    assert entropy < bits < entropy + 500


def test_there_are_never_too_many_tables() -> None:
    counts = np.zeros((256, TOKENS), np.int64)
    for cell in range(256):
        counts[cell, KNOWN[cell % len(KNOWN)]] = 1_000_000
        counts[cell, KNOWN[cell // len(KNOWN)]] += 500_000
    tables, _ = build_tables(counts, 8)
    assert len(tables.freqs) == MAX_TABLES


@pytest.mark.parametrize(("one_in", "listed"), [(39_000, True), (41_000, False)])
def test_rare_tokens_are_written_as_literals(one_in: int, listed: bool) -> None:
    counts = np.zeros((1, TOKENS), np.int64)
    counts[0, [MIDDLE, MIDDLE + 9]] = one_in * 100 - 100, 100
    tables, _ = build_tables(counts, 1)
    row = tables.freqs[0]
    assert (row[MIDDLE + 9] > 0) == listed
    assert (row[LITERAL] > 0) != listed


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
