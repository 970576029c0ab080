"""Tokens become the same values whether those with extra bits are looked for or not."""

import numpy as np
import pytest

from maskreg.codec.blocks import _apply_all
from maskreg.codec.contexts import TILE
from maskreg.codec.steps import FARTHEST, LITERAL, MIDDLE, apply_far, apply_steps, find_far

KNOWN = [*range(MIDDLE - FARTHEST, MIDDLE + FARTHEST + 1), LITERAL]


@pytest.mark.parametrize("tokens", [KNOWN, [LITERAL], [MIDDLE], [MIDDLE, LITERAL], [MIDDLE - FARTHEST]])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 1_003, TILE])
@pytest.mark.parametrize("first", range(8))
def test_both_ways_agree(tokens: list[int], n: int, first: int) -> None:
    draw = np.random.default_rng(n)
    source = draw.integers(0, 1 << 16, n).astype(np.uint16)
    drawn, flips = draw.choice(tokens, n).astype(np.uint8), -draw.integers(0, 2, n).astype(np.int8)
    bits = draw.integers(0, 256, 2 * TILE + 8).astype(np.uint8)
    one, other = np.empty(n, np.uint16), np.empty(n, np.uint16)
    marks, found = np.empty(TILE, np.uint8), np.empty(TILE, np.int64)
    apply_steps(source, drawn, flips, one)
    far = find_far(drawn, marks, marks.view(np.uint64), found)
    end = apply_far(source, drawn, flips, one, found[:far], bits, first, 8 * bits.size)
    assert _apply_all(source, drawn, flips, other, bits, first) == end
    assert np.array_equal(one, other)
