"""Vectors code tokens as lanes one by one do, and lanes as whole numbers of any size do."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from maskreg.codec.vector_encode import PACKINGS, vector_encoder
from numba import njit

from maskreg.codec.encode import _Packing
from maskreg.codec.rans import LANES, LOWEST_STATE, SLOTS, TABLE_BITS, TOKENS, Encoding, encode_tokens
from maskreg.codec.ulp_steps import LITERAL
from tests.machines import needs_vectors

Keys = npt.NDArray[np.uint16]
Slots = npt.NDArray[np.uint32]
States = npt.NDArray[np.uint32]


def by_definition(keys: Keys, slots: Slots, states: States) -> tuple[list[int], list[int]]:
    """States and words of tokens, in whole numbers of any size."""
    lanes, words = [int(state) for state in states], []
    for i in reversed(range(keys.size)):
        slot = int(slots[keys[i]])
        first, freq, state = slot >> 16, slot & 0xFFFF, lanes[i % LANES]
        if state >= freq << (32 - TABLE_BITS):
            words.append(state & 0xFFFF)
            state >>= 16
        lanes[i % LANES] = (state // freq << TABLE_BITS) + state % freq + first
    return lanes, words[::-1]


def by_lane(keys: Keys, slots: Slots, states: States) -> tuple[list[int], list[int]]:
    states, words = states.copy(), np.empty(keys.size + 1, np.uint16)
    first = encode_tokens(Encoding(keys, slots, states, words), 0, keys.size, words.size)
    return states.tolist(), words[first:].tolist()


def by_vectors(sub_blocks: int) -> Any:
    pack = vector_encoder(sub_blocks, LANES, TABLE_BITS, LITERAL)

    @njit
    def packed(keys, slots, states, words, positions, stride, begin, end):  # type: ignore[no-untyped-def]
        arrays = _Packing(keys, slots, states, words, positions)
        pack(arrays, PACKINGS, (stride, words.shape[1]), (begin, end))

    return packed


def frequencies(draw: np.random.Generator, n: int) -> Slots:
    """Slots of all sizes, at any first slot; the first are as short and as long as they get."""
    freqs = (SLOTS ** draw.random(n)).astype(np.uint32)
    freqs[:4] = 1, 2, SLOTS - 1, SLOTS
    firsts = (draw.random(n) * (SLOTS + 1 - freqs)).astype(np.uint32)
    return firsts << np.uint32(16) | freqs


def any_states(draw: np.random.Generator, keys: Keys, slots: Slots) -> States:
    """States between the lowest and the highest, often at an edge: where words fall due, or quotients change."""
    states = (LOWEST_STATE * 2.0 ** (16 * draw.random(LANES))).astype(np.uint64)
    freqs = (slots[keys[-LANES:]] & 0xFFFF).astype(np.uint64)
    edges = draw.integers(0, 4, LANES)
    states = np.where(edges == 1, (freqs << np.uint64(20)) - np.uint64(1), states)
    states = np.where(edges == 2, freqs << np.uint64(20), states)
    states = np.where(edges == 3, states // freqs * freqs, states)
    return np.clip(states, LOWEST_STATE, (1 << 32) - 1).astype(np.uint32)


@pytest.mark.parametrize("seed", range(20))
def test_lanes_follow_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    slots = frequencies(draw, 640)
    for n in [0, 1, 15, 16, 17, 500]:
        keys = draw.integers(0, slots.size, n).astype(np.uint16)
        states = any_states(draw, np.resize(np.append(keys, 0), 2 * LANES).astype(np.uint16), slots)
        assert by_lane(keys, slots, states) == by_definition(keys, slots, states)


@needs_vectors
@pytest.mark.parametrize("sub_blocks", [1, 2])
def test_vectors_follow_the_definition(sub_blocks: int) -> None:
    pack, draw = by_vectors(sub_blocks), np.random.default_rng(sub_blocks)
    for _ in range(300):
        slots = frequencies(draw, 640)
        n = LANES * int(draw.integers(1, 60))
        begin = LANES * int(draw.integers(0, n // LANES))
        stride, room = n + int(draw.integers(0, 50)), n + 8
        keys = draw.integers(0, slots.size, sub_blocks * stride).astype(np.uint16)
        states = np.stack([any_states(draw, keys[k * stride : k * stride + n], slots) for k in range(sub_blocks)])
        expected = [
            by_definition(keys[r * stride + begin : r * stride + n], slots, states[r]) for r in range(sub_blocks)
        ]
        words, positions = np.zeros((sub_blocks, room), np.uint16), np.full(sub_blocks, room, np.int64)
        pack(keys, slots, states, words, positions, stride, begin, n)
        assert [(states[r].tolist(), words[r, positions[r] :].tolist()) for r in range(sub_blocks)] == expected


@needs_vectors
@pytest.mark.parametrize("sub_blocks", [1, 2])
def test_what_a_table_lacks_becomes_a_literal(sub_blocks: int) -> None:
    draw = np.random.default_rng(0)
    slots = frequencies(draw, 4 * TOKENS)
    lacking = draw.random(slots.size) < 0.1
    lacking[LITERAL::TOKENS] = False
    slots[lacking] = 0
    keys = draw.integers(0, slots.size, sub_blocks * 160).astype(np.uint16)
    expected = np.where(lacking[keys], keys | LITERAL, keys)
    replaced, states = keys.copy(), np.full((sub_blocks, LANES), LOWEST_STATE, np.uint32)
    words, positions = np.zeros((sub_blocks, 168), np.uint16), np.full(sub_blocks, 168, np.int64)
    for k in range(sub_blocks):
        by_lane(replaced[k * 160 : (k + 1) * 160], slots, states[k])
    assert np.array_equal(replaced, expected)
    by_vectors(sub_blocks)(keys, slots, states, words, positions, 160, 0, 160)
    assert np.array_equal(keys, expected)
    assert states.tolist() == [
        by_definition(expected[r * 160 : (r + 1) * 160], slots, np.full(LANES, LOWEST_STATE, np.uint32))[0]
        for r in range(sub_blocks)
    ]
