"""What every codec must hold: lossless on every bit pattern, and safe on hostile blocks."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec import CODECS, DEFAULT_CODEC, FLAT, Codec, Grid, get_codec
from maskreg.codec.movers import find_movers
from maskreg.errors import CorruptError, FormatError
from maskreg.tensors.info import BLOCK_NUMEL

Codes = npt.NDArray[np.uint16]

_POSITIVE = [0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x7F7F, 0x7F80, 0x7FC0, 0x7F81, 0x7FFF]
SPECIAL = np.array(_POSITIVE + [c | 0x8000 for c in _POSITIVE], np.uint16)


def _random(n: int, seed: int) -> Codes:
    return np.random.default_rng(seed).integers(0, 1 << 16, n, np.uint16)


def _moved(n: int, fraction: float) -> tuple[Codes, Codes]:
    rng = np.random.default_rng(n)
    source = (rng.normal(0, 0.02, n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    steps = rng.integers(-3, 4, n).astype(np.int16).view(np.uint16)
    return source, np.where(rng.random(n) < fraction, source + steps, source).astype(np.uint16)


PAIRS = {
    "one": (np.array([1], np.uint16), np.array([2], np.uint16)),
    "special": (np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)),
    "random": (_random(70_001, 1), _random(70_001, 2)),
    "equal": (_random(5_000, 3), _random(5_000, 3)),
    "all changed": (_random(5_000, 4), _random(5_000, 4) ^ np.uint16(1)),
    "one change": (np.zeros(4_099, np.uint16), np.eye(1, 4_099, 4_098, dtype=np.uint16)[0]),
    "sign flips": (_random(999, 5), _random(999, 5) ^ np.uint16(0x8000)),
    "sparse": _moved(300_000, 0.01),
    "dense": _moved(300_000, 0.5),
    "twice": ((sides := _moved(70_000, 0.01))[0], sides[0] + 128),
    "negated": (sides[0], sides[1] ^ np.uint16(0x8000)),
    "pruned": (sides[0], np.where(sides[0] & 0x7FFF < 0x3C00, 0, sides[1]).astype(np.uint16)),
    "permuted": (sides[0], sides[1][::-1].copy()),
    "a row": (sides[0], np.where(np.arange(70_000) // 500 == 77, sides[0] ^ 5, sides[0]).astype(np.uint16)),
    "largest": _moved(BLOCK_NUMEL, 0.47),
}


GRIDS = {
    "flat": FLAT,
    "wide": Grid(500, 0),
    "begins within a row": Grid(500, 123),
    "narrow": Grid(64, 63),
    "one row": Grid(1 << 23, 5),
    "one column": Grid(1, 0),
}


def _low_rank(rows: int, width: int, seed: int = 0) -> tuple[Codes, Codes]:
    """A matrix whose update is of rank 3 and a little noise, as bf16 codes."""
    rng = np.random.default_rng(seed)
    source = rng.normal(0, 0.02, (rows, width)).astype(np.float32).view(np.uint32) >> 16
    update = rng.normal(0, 1, (rows, 3)) @ rng.normal(0, 1, (3, width)) + rng.normal(0, 0.5, (rows, width))
    target = ((source << 16).view(np.float32) + np.float32(5e-5) * update.astype(np.float32)).view(np.uint32) >> 16
    return source.astype(np.uint16).reshape(-1), target.astype(np.uint16).reshape(-1)


def _striped(rows: int, width: int) -> tuple[Codes, Codes]:
    """A matrix whose rows and columns move by very different amounts, in independent directions."""
    rng = np.random.default_rng(1)
    source = rng.normal(0, 0.02, (rows, width)).astype(np.float32).view(np.uint32) >> 16
    update = rng.normal(0, 1e-4, (rows, width)) * np.exp(rng.normal(0, 1, (rows, 1)) + rng.normal(0, 1, (1, width)))
    target = ((source << 16).view(np.float32) + update.astype(np.float32)).view(np.uint32) >> 16
    return source.astype(np.uint16).reshape(-1), target.astype(np.uint16).reshape(-1)


@pytest.fixture(params=CODECS, scope="module")
def codec(request: pytest.FixtureRequest) -> Codec:
    return get_codec(request.param)


@pytest.mark.parametrize("pair", PAIRS)
def test_lossless_both_ways(codec: Codec, pair: str) -> None:
    source, target = PAIRS[pair]
    for context, values in ((source, target), (target, source)):
        block = codec.encode(context, values)
        assert block == codec.encode(context, values)
        decoded = codec.decode(context, block)
        assert decoded.dtype == np.uint16
        assert np.array_equal(decoded, values)


@pytest.mark.parametrize("pair", PAIRS)
def test_movers_are_what_decoding_changes(codec: Codec, pair: str) -> None:
    source, target = PAIRS[pair]
    for context, values in ((source, target), (target, source), (source, source)):
        block = codec.encode(context, values)
        movers = codec.movers(context, block)
        assert movers.positions.dtype == np.uint32
        assert movers.codes.dtype == np.uint16
        assert np.array_equal(movers.positions, np.flatnonzero(context != values))
        assert np.array_equal(movers.codes, values[movers.positions])
        assert codec.encode(context, movers) == block
        between = context.copy()
        between[::7] ^= 0x81
        both = codec.movers(context, codec.encode(between, values), find_movers(context, between))
        assert np.array_equal(both.positions, movers.positions)
        assert np.array_equal(both.codes, movers.codes)


@pytest.mark.torch
@pytest.mark.parametrize("pair", PAIRS)
def test_tensors_of_torch_decode_to_the_same(codec: Codec, pair: str) -> None:
    import torch

    source, target = PAIRS[pair]
    tensor = codec.decode_tensors([torch.from_numpy(source.view(np.int16))], [codec.encode(source, target)])[0]
    assert np.array_equal(tensor.numpy().view(np.uint16), target)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("pair", ["special", "sparse", "dense", "low rank", "striped", "pruned", "a row"])
def test_lossless_wherever_it_lies(codec: Codec, pair: str, grid: str) -> None:
    pairs = PAIRS | {"low rank": _low_rank(301, 500), "striped": _striped(301, 500)}
    source, target = pairs[pair]
    block = codec.encode(source, target, GRIDS[grid])
    assert np.array_equal(codec.decode(source, block), target)


def test_a_matrix_is_smaller_when_the_codec_knows_it_is_one(codec: Codec) -> None:
    for source, target in (_low_rank(400, 500), _striped(400, 500)):
        known = len(codec.encode(source, target, Grid(500, 0)))
        assert known < 0.9 * len(codec.encode(source, target))
        # Also when the block begins within a row.
        assert len(codec.encode(source[77:], target[77:], Grid(500, 77))) < 0.92 * len(codec.encode(source, target))


def test_never_much_larger_than_the_values(codec: Codec) -> None:
    for source, target in PAIRS.values():
        assert len(codec.encode(source, target)) <= 2 * target.size + 64


def test_context_and_values_are_left_alone(codec: Codec) -> None:
    source, target = (side.copy() for side in PAIRS["dense"])
    block = codec.encode(source, target)
    codec.decode(source, block)
    assert np.array_equal(source, PAIRS["dense"][0])
    assert np.array_equal(target, PAIRS["dense"][1])


@given(data=st.data())
@settings(max_examples=300)
def test_hostile_blocks_give_values_or_a_clear_error(codec: Codec, data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(["sparse", "dense", "twice", "pruned", "permuted", "a row"]))
    source, target = (side[38_000:40_000] for side in PAIRS[pair])
    block = bytearray(codec.encode(source, target, Grid(500, 0)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(block) - 1))
        block[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(block)))
    for hostile in (bytes(block), bytes(block[:cut]), bytes(block) + b"x"):
        try:
            decoded = codec.decode(source, hostile)
        except CorruptError:
            with pytest.raises(CorruptError):
                codec.movers(source, hostile)
            continue
        assert decoded.shape == source.shape and decoded.dtype == np.uint16
        movers = codec.movers(source, hostile)
        assert np.array_equal(movers.positions, np.flatnonzero(source != decoded))
        assert np.array_equal(movers.codes, decoded[movers.positions])


@given(st.binary(max_size=200))
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    for read in (codec.decode, codec.movers):
        with pytest.raises(CorruptError):
            read(np.zeros(1_000, np.uint16), garbage)


def test_a_block_of_another_length_is_refused(codec: Codec) -> None:
    source, target = PAIRS["sparse"]
    block = codec.encode(source, target)
    for read in (codec.decode, codec.movers):
        with pytest.raises(CorruptError):
            read(source[:-1], block)


def test_bad_arguments_are_refused(codec: Codec) -> None:
    source, target = PAIRS["sparse"]
    for context, values, grid, message in (
        (source[:-1], target, FLAT, "lengths differ"), (source[:0], target[:0], FLAT, "not 0"),
        (source, target, Grid(10, 10), "column 10 is not in a row of 10"),
        (np.zeros(BLOCK_NUMEL + 1, np.uint16), np.zeros(BLOCK_NUMEL + 1, np.uint16), FLAT, f"not {BLOCK_NUMEL + 1}"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            codec.encode(context, values, grid)


def test_the_table() -> None:
    assert DEFAULT_CODEC in CODECS
    assert all(get_codec(name).name == name for name in CODECS)
    with pytest.raises(FormatError, match="unknown"):
        get_codec("nothing9")
