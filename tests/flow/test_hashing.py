"""Every build of the kernels hashes the leaves of what a block becomes as it hashes the leaves of a copy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.movers import find_movers
from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.flow.hashing import hashes_after
from tests.codec.samples import moved

LASTS = st.one_of(st.integers(1, 1200), st.sampled_from([120, 121, 512, 513, 1024, 1025, LEAF_NUMEL]))


@given(st.integers(0, 1), LASTS, st.sampled_from([0, 0.0001, 0.01, 0.5, 1]), st.integers(0, 1 << 32))
def test_leaves_are_those_of_a_copy(kernels: str, whole: int, last: int, share: float, seed: int) -> None:
    source, target = moved(whole * LEAF_NUMEL + last, share, seed)
    known = leaf_hashes(source)
    movers = find_movers(source, target)
    for given_hashes in (None, known):
        hashes, replaced = hashes_after(source, movers, given_hashes)
        assert np.array_equal(hashes, leaf_hashes(target))
        assert np.array_equal(replaced, source[movers.positions])
