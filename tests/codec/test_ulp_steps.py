"""Tokens become values, one after another as FORMAT.md says, in every build of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.step2 import Step2
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, LITERAL_BITS, MIDDLE, NEAREST, Moves, apply_tokens
from tests.codec import reference
from tests.codec.samples import moved
from tests.codec.writing import random_model, write

KNOWN = [*range(MIDDLE - FARTHEST, MIDDLE + FARTHEST + 1), LITERAL]


@pytest.mark.parametrize("tokens", [KNOWN, [LITERAL], [MIDDLE], [MIDDLE, LITERAL], [MIDDLE - FARTHEST]])
@pytest.mark.parametrize("n", [0, 1, 7, 1_003])
@pytest.mark.parametrize("first", range(8))
def test_tokens_become_values(tokens: list[int], n: int, first: int) -> None:
    draw = np.random.default_rng(n)
    source = draw.integers(0, 1 << 16, n).astype(np.uint16)
    drawn, flips = draw.choice(tokens, n).astype(np.uint8), -draw.integers(0, 2, n).astype(np.int8)
    bits = draw.integers(0, 256, LITERAL_BITS // 8 * n + 8).astype(np.uint8)
    stream, at = int.from_bytes(bits.tobytes(), "little"), first
    expected = []
    for code, token, flip in zip(source.tolist(), drawn.tolist(), flips.tolist(), strict=True):
        size = abs(token - MIDDLE)
        count = LITERAL_BITS if token == LITERAL else max(size - 13, 0) if size > NEAREST else 0
        extra = stream >> at & ((1 << count) - 1)
        at += count
        length = (1 << count) + extra + 1 if size > NEAREST else size
        magnitude = (code & 0x7FFF) + (-length if (token < MIDDLE) != (flip != 0) else length)
        expected.append(extra if token == LITERAL else code & 0x8000 | magnitude & 0x7FFF)
    values = np.empty(n, np.uint16)
    assert apply_tokens(Moves(source, drawn, flips, values), bits, first, 8 * bits.size) == at
    assert values.tolist() == expected


@given(
    st.sampled_from([1, 15, 17, 1023, 1025, 9000, 40_000]),
    st.integers(1, 9),
    st.sampled_from([3, 40, 30_000]),
    st.sampled_from([0.0, 0.001, 0.2]),
    st.integers(0, 1 << 32),
)
def test_blocks_of_any_steps_and_sub_blocks_decode(
    kernels: str, n: int, count: int, farthest: int, literals: float, seed: int
) -> None:
    source, target = moved(n, 0.5, seed, farthest, literals)
    step2 = Step2()
    assert np.array_equal(step2.decode(source, step2.encode(source, target)), target)
    if 1000 < n <= 9000:
        count = min(count, -(-n // 4096))
        model = random_model(n, width=max(n // 9, 1), rank=seed % 6, scaled=bool(seed % 4 // 2), seed=seed)
        block = write(source.tolist(), target.tolist(), model, count=count)
        # A model that fits badly may take more than the codes do, and such blocks are refused.
        if len(block) <= 8 + 2 * n:
            assert reference.decode(source.tolist(), block) == target.tolist()
            assert np.array_equal(step2.decode(source, block), target)


@given(st.integers(0, 2000), st.integers(1, 70), st.integers(0, 1 << 32))
def test_long_steps_side_by_side_in_a_sparse_block_decode(kernels: str, first: int, count: int, seed: int) -> None:
    source, target = moved(2_500, 0.01, seed, 3, 0.0)
    target[first : first + count] = source[first : first + count] ^ np.uint16(0x1000)
    step2 = Step2()
    assert np.array_equal(step2.decode(source, step2.encode(source, target)), target)
