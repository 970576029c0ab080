"""Tokens of any length become values again, in every build of the kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.step2 import Step2
from tests.codec.samples import moved
from tests.codec.writing import random_model, write


@given(
    st.sampled_from([1, 15, 17, 1023, 1025, 9000, 40_000]),
    st.integers(1, 9),
    st.sampled_from([3, 40, 30_000]),
    st.sampled_from([0.0, 0.001, 0.2]),
    st.integers(0, 1 << 32),
)
@settings(max_examples=30)
def test_blocks_of_any_steps_and_sub_blocks_decode(
    kernels: str, n: int, count: int, farthest: int, literals: float, seed: int
) -> None:
    source, target = moved(n, 0.5, seed, farthest, literals)
    step2 = Step2()
    assert np.array_equal(step2.decode(source, step2.encode(source, target)), target)
    if 1000 < n <= 9000:
        count = min(count, -(-n // 4096))
        model = random_model(n, width=max(n // 9, 1), rank=seed % 6, scaled=bool(seed % 4 // 2), seed=seed)
        block = write(source, target, model, count=count)
        # A model that fits badly can take more than the codes do, and such blocks are refused.
        if len(block) <= 8 + 2 * n:
            assert np.array_equal(step2.decode(source, block), target)


@given(st.integers(0, 2000), st.integers(1, 70), st.integers(0, 1 << 32))
def test_long_steps_side_by_side_in_a_sparse_block_decode(kernels: str, first: int, count: int, seed: int) -> None:
    source, target = moved(2_500, 0.01, seed, 3, 0.0)
    target[first : first + count] = source[first : first + count] ^ np.uint16(0x1000)
    step2 = Step2()
    assert np.array_equal(step2.decode(source, step2.encode(source, target)), target)
