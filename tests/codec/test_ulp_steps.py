"""Tokens become the same values whether those with extra bits are listed first or not."""

import numpy as np
import pytest

from maskreg.codec.contexts import TILE
from maskreg.codec.decode import apply_all
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, MIDDLE, Moves, apply_far, apply_near, find_far

KNOWN = [*range(MIDDLE - FARTHEST, MIDDLE + FARTHEST + 1), LITERAL]


@pytest.mark.parametrize("tokens", [KNOWN, [LITERAL], [MIDDLE], [MIDDLE, LITERAL], [MIDDLE - FARTHEST]])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 1_003, TILE])
@pytest.mark.parametrize("first", range(8))
def test_both_ways_agree(tokens: list[int], n: int, first: int) -> None:
    draw = np.random.default_rng(n)
    source = draw.integers(0, 1 << 16, n).astype(np.uint16)
    drawn, flips = draw.choice(tokens, n).astype(np.uint8), -draw.integers(0, 2, n).astype(np.int8)
    bits = draw.integers(0, 256, 2 * TILE + 8).astype(np.uint8)
    listed = Moves(source, drawn, flips, np.empty(n, np.uint16))
    alike = Moves(source, drawn, flips, np.empty(n, np.uint16))
    far = np.empty(TILE, np.int64)
    apply_near(listed)
    count = find_far(drawn, np.empty(TILE, np.uint8), far)
    end = apply_far(listed, far[:count], bits, first, 8 * bits.size)
    assert apply_all(alike, bits, first) == end
    assert np.array_equal(listed.values, alike.values)
