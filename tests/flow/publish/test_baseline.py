"""What is known of the blocks of a baseline."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.codec.movers import find_movers
from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.flow.extract.differ import nans_and_infinities
from maskreg.flow.publish.baseline import Facts


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
