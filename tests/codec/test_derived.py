"""Changes that are no small steps take about as few bits as it takes to say what was done."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from maskreg.codec import FLAT, Grid, get_codec
from maskreg.codec.derived import scaled
from maskreg.codec.layout import APART, CODED, RAW, ROWS, SAME, SCALED, ZEROED, Head
from maskreg.errors import CorruptError
from tests.codec.samples import Codes, codes, moved, samples

CODEC = get_codec("step2")
WIDTH, ROW = 400, slice(8_000, 8_400)
SOURCE = codes(np.random.default_rng(0).normal(0, 0.02, 400 * WIDTH))
VALUES = (SOURCE.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
MAGNITUDES = SOURCE & 0x7FFF
SMALL = np.median(MAGNITUDES) > MAGNITUDES


def times(factor: float) -> Codes:
    """The source times a number, as fp32 has it."""
    return codes(VALUES * float(np.float32(factor)))


def block_of(target: Codes, grid: Grid = FLAT) -> bytes:
    """A block that decodes to the target."""
    block = CODEC.encode(SOURCE, target, grid)
    assert np.array_equal(CODEC.decode(SOURCE, block), target)
    return block


@pytest.mark.parametrize("factor", [2, -1, 0.5, 1.1, 1.01, -0.3, 1e20])
def test_a_factor_takes_no_bits_of_a_weight(factor: float) -> None:
    block = block_of(times(factor))
    assert Head.read(block).kind == SCALED
    assert len(block) == 20


def test_a_product_is_rounded_as_fp32_and_then_as_bf16() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    magnitude = every & 0x7FFF
    # Neither the code nor its product is a denormal, infinite or a NaN.
    normal = (magnitude >= 0x1000) & (magnitude < 0x7000)
    for factor in (1.1, -1.001, 3.0):
        bits = int(np.float32(factor).view(np.uint32))
        exact = (every.astype(np.uint32) << 16).view(np.float32)[normal].astype(np.float64) * float(np.float32(factor))
        assert np.array_equal(scaled(every, bits)[normal], codes(exact))
        assert np.array_equal(scaled(every, bits)[magnitude >= 0x7F80] & 0x7FFF, magnitude[magnitude >= 0x7F80])


@pytest.mark.parametrize("order", ["weights", "rows"])
def test_weights_unlike_the_source_take_no_more_than_their_own_entropy(order: str) -> None:
    draw = np.random.default_rng(2)
    target = draw.permutation(SOURCE if order == "weights" else SOURCE.reshape(-1, WIDTH)).reshape(-1)
    block = block_of(target, Grid(WIDTH, 0))
    shares = np.bincount(target >> 7 & 0xFF)[np.unique(target >> 7 & 0xFF)] / target.size
    assert Head.read(block).kind == APART
    assert 8 * len(block) < (8 - float(np.dot(shares, np.log2(shares)))) * target.size * 1.002


@pytest.mark.parametrize(
    ("zeroed", "zeros", "bits"),
    [(SMALL, 0, 0.01), (SMALL, 0x8000, 0.01), (np.random.default_rng(3).random(SOURCE.size) < 0.5, 0, 1.02)],
    ids=["small", "small, of their sign", "at random"],
)
def test_weights_that_become_zero_take_no_more_than_it_takes_to_say_which(
    zeroed: np.ndarray, zeros: int, bits: float
) -> None:
    block = block_of(np.where(zeroed, SOURCE & np.uint16(zeros), SOURCE))
    assert Head.read(block).kind == ZEROED
    assert 8 * len(block) < bits * SOURCE.size


def test_a_row_takes_what_its_weights_take() -> None:
    target = SOURCE.copy()
    target[ROW] = codes(VALUES[ROW] + np.random.default_rng(5).normal(0, 1e-3, WIDTH))
    block = block_of(target, Grid(WIDTH, 0))
    assert Head.read(block).kind == ROWS
    assert len(block) < 0.6 * len(CODEC.encode(SOURCE, target))
    target[ROW] = 0
    assert len(block_of(target, Grid(WIDTH, 0))) < 64


def test_a_block_without_kin_is_none_that_holds_others() -> None:
    for share in (0.01, 0.3, 1.0):
        source, target = moved(70_000, share, 6, farthest=40)
        assert Head.read(CODEC.encode(source, target, Grid(100, 0))).kind <= 3
    draw = np.random.default_rng(7)
    anything, other = (draw.integers(0, 1 << 16, 5_000).astype(np.uint16) for _ in range(2))
    assert Head.read(CODEC.encode(anything, other)).kind == RAW


def inner_at(block: bytes) -> int:
    """Where the last block within a block begins."""
    n, kind = struct.unpack_from("<IB", block)
    if kind == ZEROED:
        return 14 + int(struct.unpack_from("<I", block, 8)[0])
    starts: dict[int, int] = {SCALED: 12, APART: 8 + n, ROWS: 20 + block[16]}
    return starts[kind]


@pytest.mark.parametrize("name", ["twice", "unrelated", "small ones become 0", "rows"])
def test_a_block_holds_only_blocks_of_lower_kinds(name: str) -> None:
    source, _, block = samples()[name]
    at = inner_at(block)
    for kind in (SAME, CODED, block[4], ROWS):
        within = bytearray(block[:at]) + struct.pack("<IBBBB", struct.unpack_from("<I", block, at)[0], kind, 0, 0, 0)
        if kind == SAME:
            CODEC.decode(source, bytes(within))
        else:
            with pytest.raises(CorruptError):
                CODEC.decode(source, bytes(within))


@pytest.mark.parametrize(
    ("name", "at", "damage"),
    [
        ("twice", 8, "<I 0"), ("twice", 8, "<I 0x7f800000"), ("twice", 6, "<B 1"), ("unrelated", 5, "<B 1"),
        ("small ones become 0", 6, "<B 2"), ("small ones become 0", 8, "<I 0xffffffff"), ("rows", 8, "<I 0"),
        ("rows", 8, "<I 6001"), ("rows", 12, "<I 100"), ("rows", 16, "<I 0"), ("rows", 16, "<I 0xffffffff"),
        ("rows", 20, "<B 255"), ("rows", 7, "<B 1"), ("sparse, nothing moves", 11, "<QI 2 0"),
    ],
)  # fmt: skip
def test_fields_out_of_range_are_refused(name: str, at: int, damage: str) -> None:
    source, _, block = samples()[name]
    layout, *values = damage.split()
    hostile = bytearray(block)
    hostile[at : at + struct.calcsize(layout)] = struct.pack(layout, *(int(value, 0) for value in values))
    with pytest.raises(CorruptError):
        CODEC.decode(source, bytes(hostile))
