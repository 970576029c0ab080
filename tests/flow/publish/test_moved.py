"""What moved, kept in little memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
