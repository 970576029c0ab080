"""Vectors code tokens as lanes one by one do, and lanes as whole numbers of any size do."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from maskreg.codec.rans import LANES, LOWEST_STATE, SLOTS, TABLE_BITS, TOKENS, encode_tokens
from maskreg.codec.steps import LITERAL
from maskreg.codec.vector_encode import PACKINGS, vector_encoder
from tests.machines import needs_vectors

Keys = npt.NDArray[np.uint16]
Spans = npt.NDArray[np.uint32]
States = npt.NDArray[np.uint32]


def by_definition(keys: Keys, spans: Spans, states: States) -> tuple[list[int], list[int]]:
    """States and words of tokens, in whole numbers of any size."""
    lanes, words = [int(state) for state in states], []
    for i in reversed(range(keys.size)):
        span = int(spans[keys[i]])
        first, freq, state = span >> 16, span & 0xFFFF, lanes[i % LANES]
        if state >= freq << (32 - TABLE_BITS):
            words.append(state & 0xFFFF)
            state >>= 16
        lanes[i % LANES] = (state // freq << TABLE_BITS) + state % freq + first
    return lanes, words[::-1]


def by_lane(keys: Keys, spans: Spans, states: States) -> tuple[list[int], list[int]]:
    states, words = states.copy(), np.empty(keys.size + 1, np.uint16)
    first = encode_tokens(keys, 0, keys.size, spans, states, words, words.size)
    return states.tolist(), words[first:].tolist()


def by_vectors(runs: int) -> Any:
    pack = vector_encoder(runs, LANES, TABLE_BITS, LITERAL)

    @njit
    def packed(keys, spans, states, words, places, stride, begin, end):  # type: ignore[no-untyped-def]
        pack(keys, spans, states, words, places, PACKINGS, stride, words.shape[1], begin, end)

    return packed


def frequencies(draw: np.random.Generator, n: int) -> Spans:
    """Spans of all sizes, at any first slot; the first are as short and as long as they get."""
    freqs = (SLOTS ** draw.random(n)).astype(np.uint32)
    freqs[:4] = 1, 2, SLOTS - 1, SLOTS
    firsts = (draw.random(n) * (SLOTS + 1 - freqs)).astype(np.uint32)
    return firsts << np.uint32(16) | freqs


def any_states(draw: np.random.Generator, keys: Keys, spans: Spans) -> States:
    """States between the lowest and the highest, often at an edge: where words fall due, or quotients change."""
    states = (LOWEST_STATE * 2.0 ** (16 * draw.random(LANES))).astype(np.uint64)
    freqs = (spans[keys[-LANES:]] & 0xFFFF).astype(np.uint64)
    edges = draw.integers(0, 4, LANES)
    states = np.where(edges == 1, (freqs << np.uint64(20)) - np.uint64(1), states)
    states = np.where(edges == 2, freqs << np.uint64(20), states)
    states = np.where(edges == 3, states // freqs * freqs, states)
    return np.clip(states, LOWEST_STATE, (1 << 32) - 1).astype(np.uint32)


@pytest.mark.parametrize("seed", range(20))
def test_lanes_follow_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    spans = frequencies(draw, 640)
    for n in [0, 1, 15, 16, 17, 500]:
        keys = draw.integers(0, spans.size, n).astype(np.uint16)
        states = any_states(draw, np.resize(np.append(keys, 0), 2 * LANES).astype(np.uint16), spans)
        assert by_lane(keys, spans, states) == by_definition(keys, spans, states)


@needs_vectors
@pytest.mark.parametrize("runs", [1, 2])
def test_vectors_follow_the_definition(runs: int) -> None:
    pack, draw = by_vectors(runs), np.random.default_rng(runs)
    for _ in range(300):
        spans = frequencies(draw, 640)
        n = LANES * int(draw.integers(1, 60))
        begin = LANES * int(draw.integers(0, n // LANES))
        stride, room = n + int(draw.integers(0, 50)), n + 8
        keys = draw.integers(0, spans.size, runs * stride).astype(np.uint16)
        states = np.stack([any_states(draw, keys[run * stride : run * stride + n], spans) for run in range(runs)])
        wanted = [by_definition(keys[r * stride + begin : r * stride + n], spans, states[r]) for r in range(runs)]
        words, places = np.zeros((runs, room), np.uint16), np.full(runs, room, np.int64)
        pack(keys, spans, states, words, places, stride, begin, n)
        assert [(states[r].tolist(), words[r, places[r] :].tolist()) for r in range(runs)] == wanted


@needs_vectors
@pytest.mark.parametrize("runs", [1, 2])
def test_what_a_table_lacks_becomes_a_literal(runs: int) -> None:
    draw = np.random.default_rng(0)
    spans = frequencies(draw, 4 * TOKENS)
    lacking = draw.random(spans.size) < 0.1
    lacking[LITERAL::TOKENS] = False
    spans[lacking] = 0
    keys = draw.integers(0, spans.size, runs * 160).astype(np.uint16)
    wanted = np.where(lacking[keys], keys | LITERAL, keys)
    others, states = keys.copy(), np.full((runs, LANES), LOWEST_STATE, np.uint32)
    words, places = np.zeros((runs, 168), np.uint16), np.full(runs, 168, np.int64)
    for run in range(runs):
        by_lane(others[run * 160 : (run + 1) * 160], spans, states[run])
    assert np.array_equal(others, wanted)
    by_vectors(runs)(keys, spans, states, words, places, 160, 0, 160)
    assert np.array_equal(keys, wanted)
    assert states.tolist() == [
        by_definition(wanted[r * 160 : (r + 1) * 160], spans, np.full(LANES, LOWEST_STATE, np.uint32))[0]
        for r in range(runs)
    ]
