"""What moved, kept in little memory, and what is known of the blocks of a baseline after it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.movers import find_movers
from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.flow.extract.differ import nans_and_infinities
from maskreg.flow.publish.baseline import Facts
from maskreg.flow.publish.moved import Kept, moved_between, write

SIZES, DENSITIES = st.integers(0, 3000), st.floats(0, 1)


@given(SIZES, st.sampled_from(["<u1", "<u2", "<u4"]), DENSITIES, st.integers(0, 99))
def test_what_moved_comes_back(size: int, dtype: str, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, size).astype(dtype)
    after = np.where(rng.random(size) < density, rng.integers(0, 200, size).astype(dtype), before)
    moved = moved_between(before, after)
    if moved.positions.size:
        kept = Kept.of(moved)
        assert all(np.array_equal(*each) for each in zip(kept.moved, moved, strict=True))
        assert kept.where.nbytes <= size / 8 + 8
        write(before, kept)
    assert np.array_equal(before, after)


@pytest.mark.parametrize("numel", [1, LEAF_NUMEL, LEAF_NUMEL + 1, 3 * LEAF_NUMEL - 5])
def test_facts_follow_what_moved(numel: int) -> None:
    rng = np.random.default_rng(numel)
    before = rng.integers(0, 1 << 16, numel).astype(np.uint16)
    after = before.copy()
    # Nothing moves in the first of several leaves.
    chosen = rng.integers(numel // 2, numel, 100)
    after[chosen] = rng.integers(0, 1 << 16, 100)
    movers = find_movers(before, after)
    facts, replaced = Facts(leaf_hashes(before), *nans_and_infinities(before)).after(before, movers)
    assert np.array_equal(replaced, before[movers.positions])
    assert np.array_equal(facts.leaves, leaf_hashes(after))
    assert facts[1:] == nans_and_infinities(after)
