"""Movers are coded in the same bytes by every build of the kernels, and decode, with any hazards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.movers import (
    BINADES,
    CLASSES,
    HAZARDS,
    LIMIT,
    MOST_INDEX,
    SHARES,
    STATE_BYTES,
    Hazards,
    decode_movers,
    encode_movers,
    find_movers,
    merged,
    survival,
    unpack_indexes,
)
from maskreg.codec.sparse import SparseModel, choose_model
from maskreg.errors import CorruptError
from tests.codec.samples import moved, sparse_model
from tests.kernels import agreed

SIZES = st.sampled_from([1, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 2048, 5000])

Codes = npt.NDArray[np.uint16]


def hazards_of(draw: np.random.Generator) -> Hazards:
    """Hazards above 0, so that every move can be coded."""
    lowest, highest = sorted(draw.integers(0, MOST_INDEX + 1, 2).tolist())
    by_class = HAZARDS[draw.integers(lowest, highest + 1, CLASSES)]
    shares = (
        SHARES[draw.integers(least, MOST_INDEX + 1, count)] for least, count in [(1, CLASSES), *[(0, BINADES)] * 2]
    )
    return Hazards(int(draw.integers(100, 125)), by_class, *shares)


def encoded(source: Codes, target: Codes, hazards: Hazards, length: int) -> list[bytes]:
    """The sub-blocks of a block."""
    return encode_movers(source, find_movers(source, target), hazards, length)


def decoded(source: Codes, parts: list[bytes], hazards: Hazards, length: int) -> Codes:
    """What sub-blocks decode to, with a byte before and after them."""
    values = source.copy()
    starts = np.cumsum([1, *(len(part) for part in parts)])
    coded = np.frombuffer(b"\0" + b"".join(parts) + b"\0", np.uint8)
    movers = decode_movers(source, coded, starts, hazards, length)
    assert (np.diff(movers.positions.astype(np.int64)) > 0).all()
    values[movers.positions] = movers.codes
    return values


@given(SIZES, st.sampled_from([0, 0.002, 0.03, 0.5, 1]), st.integers(0, 1 << 32))
def test_every_build_codes_alike_and_decodes(n: int, share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    source, target = moved(n, share, seed, farthest=int(draw.choice([1, 3, 3000])), literals=0.1 * share)
    hazards = hazards_of(draw)
    if not ((target - source + np.uint16(1)) > 2).any():
        hazards = hazards._replace(shares=np.zeros(CLASSES, np.uint16))
    (part, values) = agreed(
        lambda: [
            np.frombuffer((parts := encoded(source, target, hazards, n))[0], np.uint8),
            decoded(source, parts, hazards, n),
        ]
    )
    assert part.size >= STATE_BYTES
    assert np.array_equal(values, target)


@given(st.integers(1, 9), st.sampled_from([1, 1000, 1024, 4000]), st.integers(0, 1 << 32))
def test_sub_blocks_decode_side_by_side(kernels: str, count: int, last: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    length = 4096
    source, target = moved((count - 1) * length + last, 0.02, seed)
    hazards = hazards_of(draw)
    parts = encoded(source, target, hazards, length)
    assert np.array_equal(decoded(source, parts, hazards, length), target)
    number = int(draw.integers(count))
    short = [part[:-4] if k == number else part for k, part in enumerate(parts)]
    if len(parts[number]) > STATE_BYTES:
        with pytest.raises(CorruptError, match=f"sub-block {number} "):
            decoded(source, short, hazards, length)
    longer = [part + bytes(4) if k == number else part for k, part in enumerate(parts)]
    with pytest.raises(CorruptError, match=f"sub-block {number} "):
        decoded(source, longer, hazards, length)


@given(SIZES, st.integers(1, 3), st.sampled_from([0, 0.01, 0.3, 1]), st.integers(0, 1 << 32))
def test_movers_are_decoded_after_others(kernels: str, n: int, count: int, share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    source, between = moved(n, share, seed, farthest=200, literals=0.1 * share)
    target = np.where(draw.random(n) < 0.5, source, between)  # half of what moved moves back
    target ^= draw.random(n) < 0.05
    hazards, length = hazards_of(draw), -(-n // count)
    before, after = find_movers(source, between), find_movers(between, target)
    parts = encode_movers(between, after, hazards, length)
    starts = np.cumsum([0, *(len(part) for part in parts)])
    movers = decode_movers(source, np.frombuffer(b"".join(parts), np.uint8), starts, hazards, length, before)
    both = merged(source, before, movers)
    assert np.array_equal(movers.positions, after.positions)
    assert np.array_equal(movers.codes, after.codes)
    assert np.array_equal(both.positions, np.flatnonzero(source != target))
    assert np.array_equal(both.codes, target[both.positions])


@given(SIZES, st.integers(1, 9), st.sampled_from([1, MOST_INDEX]), st.integers(0, 1 << 32))
def test_any_words_give_no_more_movers_than_coordinates(
    kernels: str, n: int, count: int, index: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    source = moved(n, 0, seed)[0]
    length = -(-n // count)
    count = -(-n // length)
    coded = draw.integers(0, 256, count * (STATE_BYTES + 4 * int(draw.integers(0, 300))), np.uint8)
    starts = np.linspace(0, coded.size, count + 1).astype(np.int64)
    hazards = hazards_of(draw)._replace(by_class=np.full(CLASSES, HAZARDS[index]))
    hazards = hazards._replace(shares=hazards.shares * np.uint16(draw.integers(2)))
    with pytest.raises(CorruptError):
        decode_movers(source, coded, starts, hazards, length)


@given(SIZES, st.sampled_from([0, 0.002, 0.03, 0.5, 1]), st.integers(0, 1 << 32))
def test_what_differs_is_found(kernels: str, n: int, share: float, seed: int) -> None:
    source, target = moved(n, share, seed, literals=0.1 * share)
    movers = find_movers(source, target)
    assert np.array_equal(movers.positions, np.flatnonzero(source != target))
    assert np.array_equal(movers.codes, target[movers.positions])


def test_a_long_wait_takes_several_numbers(kernels: str) -> None:
    source = np.full(300_000, 0x3C00, np.uint16)
    target = source.copy()
    target[[17, 299_990]] += 1
    for index in (0, 12, 20, 40):
        hazards = sparse_model(112, [index] * CLASSES, 0).hazards()
        (coded,) = encoded(source, target, hazards, source.size)
        assert np.array_equal(decoded(source, [coded], hazards, source.size), target)
        # An octave takes a bit, and each number one more for its sign.
        numbers = 300_000 * int(HAZARDS[index]) / LIMIT
        assert len(coded) < STATE_BYTES + 20 + 9 / 8 * numbers


def test_survival_falls_by_half_for_each_octave() -> None:
    values = np.array([survival(hazard) for hazard in range(LIMIT + 1)])
    assert values[0] == 1 << 28
    assert (np.diff(values) < 0).all()
    assert np.allclose(values / 2.0**28, 2.0 ** (-np.arange(LIMIT + 1) / 8192), rtol=1e-6, atol=0)


PAIRS = st.tuples(st.integers(0, MOST_INDEX), st.integers(0, MOST_INDEX))


@given(st.lists(PAIRS, min_size=1, max_size=CLASSES), st.lists(PAIRS, max_size=BINADES))
def test_models_come_back(classes: list[tuple[int, int]], binades: list[tuple[int, int]]) -> None:
    model = SparseModel(
        7, *(np.array(own, np.uint8).reshape(-1, 2)[:, i] for own in (classes, binades) for i in (0, 1))
    )
    packed = model.pack()
    unpacked = SparseModel.unpack(int.from_bytes(packed + b"\xff", "little"), 7, len(classes))
    assert unpacked is not None
    assert unpacked[1] == len(packed)
    assert [own.tolist() for own in unpacked[0][1:]] == [own.tolist() for own in model[1:]]


def test_indexes_out_of_range_are_refused() -> None:
    assert unpack_indexes(MOST_INDEX + 1, 1) is None
    # Rice codes of -1 at index 0, of 1 at index 60, and one that does not end.
    assert unpack_indexes(0 | 0b01 << 8, 2) is None
    assert unpack_indexes(MOST_INDEX | 0b01111111111 << 8, 2) is None
    assert unpack_indexes(30 | (1 << 2000) - 1 << 8, 2) is None


@given(st.sampled_from([3, 40, 200]), st.sampled_from([1, 20, 255]), st.integers(0, 1 << 32))
def test_every_build_chooses_the_same_hazards(exponents: int, lowest: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    counts = np.zeros((5, 256), np.int64)
    own = draw.integers(min(lowest, 255), 256, exponents)
    for row, most in enumerate((24, 20, 18, 18, 17)):
        counts[row, own] = draw.integers(0, 1 << int(draw.integers(1, most)), exponents)
    counts[1, own[0]] += 1
    counts[2] = np.minimum(counts[1], counts[2])
    first, indexes, shares, longer, tops = agreed(lambda: choose_model(counts)[0])
    assert first + indexes.size > int(np.flatnonzero(counts[1])[-1]) or indexes.size == CLASSES
    assert shares.size == indexes.size
    assert longer.size == tops.size <= BINADES
