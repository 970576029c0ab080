"""Sub-blocks come out as whole numbers of any size say, in every build of the kernels, and decode."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.layout import ENTRY_BYTES, LANES, LOWEST_STATE, STATE_BYTES
from maskreg.codec.subblocks import Pair, classify_all, encode_sub_blocks, most_bytes
from maskreg.codec.tables import SLOTS, TABLE_BITS
from maskreg.codec.ulp_steps import LITERAL, TOKENS, tokens_of
from tests.codec.samples import moved
from tests.codec.writing import random_model
from tests.kernels import agreed

Keys = npt.NDArray[np.uint16]
Slots = npt.NDArray[np.uint32]
States = npt.NDArray[np.uint32]

SIZES = st.sampled_from([1, 15, 16, 17, 1023, 1024, 1025, 4096, 5000])


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


def frequencies(draw: np.random.Generator, n: int) -> Slots:
    """Slots of all sizes, at any first slot; the first are as short and as long as they get."""
    freqs = (SLOTS ** draw.random(n)).astype(np.uint32)
    freqs[:4] = 1, 2, SLOTS - 1, SLOTS
    firsts = (draw.random(n) * (SLOTS + 1 - freqs)).astype(np.uint32)
    return firsts << np.uint32(16) | freqs


class SubBlock(NamedTuple):
    states: list[int]
    words: list[int]
    bits: list[int]


def written(pair: Pair, slots: Slots) -> list[SubBlock]:
    """What is stored, read by the directory; all of it is."""
    n = pair.keys.size
    out = np.full(most_bytes(n, pair.length), 0xA5, np.uint8)
    size, count = encode_sub_blocks(pair, slots, out), -(-n // pair.length)
    at, result = ENTRY_BYTES * count, []
    for words, bits in out[:at].view("<u4").reshape(count, 2).tolist():
        parts = np.split(out[at : at + STATE_BYTES + 2 * words + -(-bits // 8)], [STATE_BYTES, STATE_BYTES + 2 * words])
        at += sum(part.size for part in parts)
        flags = np.unpackbits(parts[2], bitorder="little")
        assert not flags[bits:].any()
        result.append(SubBlock(parts[0].view("<u4").tolist(), parts[1].view("<u2").tolist(), flags[:bits].tolist()))
    assert at == size <= out.size - 8
    return result


def coded(keys: Keys, slots: Slots, length: int) -> tuple[Keys, list[SubBlock]]:
    """Keys, and sub-blocks of them; where a token has extra bits, some are written."""
    own = keys.copy()
    values = np.arange(keys.size, dtype=np.uint16)
    return own, written(Pair(values, values, own, length), slots)


@given(SIZES, st.integers(1, 9), st.integers(0, 1 << 32))
def test_sub_blocks_follow_the_definition(kernels: str, last: int, count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    slots = frequencies(draw, 4 * TOKENS)
    length = last + int(draw.integers(0, 100))
    keys = draw.integers(0, slots.size, (count - 1) * length + last).astype(np.uint16)
    # Tokens without extra bits, which have tests of their own.
    keys = keys & np.uint16(0xFFC0) | np.uint16(16) + keys % np.uint16(33)
    _, sub_blocks = coded(keys, slots, length)
    assert len(sub_blocks) == count
    for k, sub_block in enumerate(sub_blocks):
        first = np.full(LANES, LOWEST_STATE, np.uint32)
        states, words = by_definition(keys[k * length : (k + 1) * length], slots, first)
        assert sub_block == (states, words, [])


@given(st.integers(0, 1 << 32))
def test_what_a_table_lacks_becomes_a_literal(kernels: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    slots = frequencies(draw, 4 * TOKENS)
    lacking = draw.random(slots.size) < 0.1
    lacking[LITERAL::TOKENS] = False
    slots[lacking] = 0
    keys = draw.integers(0, slots.size, 333).astype(np.uint16)
    own, _ = coded(keys, slots, 160)
    assert np.array_equal(own, np.where(lacking[keys], keys | LITERAL, keys))


@given(SIZES, st.sampled_from([0.01, 0.3, 1.0]), st.integers(0, 1 << 32))
def test_every_build_finds_the_same_tokens_counts_keys_and_bytes(n: int, density: float, seed: int) -> None:
    source, target = moved(n, density, seed)
    # Any codes at all, half of the time: changes of sign, NaN, far steps.
    if seed % 2:
        target = np.random.default_rng(seed).integers(0, 1 << 16, n).astype(np.uint16)
    contexts = random_model(n, width=max(n // 7, 1), rank=seed % 6, scaled=bool(seed % 4 // 2), seed=seed).contexts

    def compute() -> list[npt.NDArray[np.generic]]:
        tokens, counts, keys = np.empty(n, np.uint8), np.ones((256, TOKENS), np.int64), np.empty(n, np.uint16)
        tokens_of(source, target, tokens, counts)
        by_cell = classify_all(source, 0, contexts, tokens, keys)
        slots, length = np.full(contexts.cells * TOKENS, 1 << 16 | 64, np.uint32), max(n // 3, 1)
        out = np.empty(most_bytes(n, length), np.uint8)
        size = encode_sub_blocks(Pair(source, target, keys, length), slots, out)
        return [tokens, counts, keys, by_cell, out[:size]]

    tokens, counts, keys, by_cell, _ = agreed(compute)
    assert np.array_equal(counts.sum(axis=0) - 256, np.bincount(tokens, minlength=TOKENS))
    assert np.array_equal(by_cell.reshape(-1), np.bincount(keys, minlength=by_cell.size))


@pytest.mark.parametrize("n", [(1 << 16) - 1, 1 << 16, (1 << 20) + 1_500])
@pytest.mark.parametrize("density", [0.01, 0.5])
def test_a_sample_of_a_long_span_is_counted(n: int, density: float) -> None:
    """Unless few of it moved; in both cases about as many are counted as there are."""
    source, target = moved(n, density, 1)
    # Of any exponent, and tiles of zeros alone in the beginning.
    source[:5_000] = target[:5_000] = 0
    target[5_000:6_000] = source[5_000:6_000] = np.arange(1_000) << 6

    def compute() -> list[npt.NDArray[np.generic]]:
        tokens, counts = np.empty(n, np.uint8), np.ones((256, TOKENS), np.int64)
        tokens_of(source, target, tokens, counts)
        return [tokens, counts]

    tokens, counts = agreed(compute)
    sampled = n >= 1 << 16 and density == 0.5
    assert (counts.sum() - counts.size == n) != sampled
    assert abs(counts.sum() - counts.size - n) < n / 50
    by_token = np.bincount(tokens, minlength=TOKENS)
    # A sample of few tiles has more of the zeros.
    most = n / (50 if n >= 1 << 20 else 8) if sampled else 1
    assert np.abs(counts.sum(axis=0) - 256 - by_token).max() < most
