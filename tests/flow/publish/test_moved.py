"""What moved, as bytes for another process."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskreg.flow.publish.moved import Kept, Moved, moved_between, packed, unpacked

PIECES = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from(["<u1", "<u2", "<u4"]), st.floats(0, 1), st.integers(0, 99)),
    max_size=4,
)


@given(PIECES)
def test_what_moved_comes_back(pieces: list[tuple[int, str, float, int]]) -> None:
    before, after, moved = [], [], []
    for size, dtype, density, seed in pieces:
        rng = np.random.default_rng(seed)
        old = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, size).astype(dtype)
        new = np.where(rng.random(size) < density, rng.integers(0, 200, size).astype(dtype), old)
        before.append(old)
        after.append(new)
        moved.append(moved_between(old, new))
        if moved[-1].positions.size:
            kept = Kept.of(moved[-1])
            assert all(np.array_equal(*each) for each in zip(kept.moved, moved[-1], strict=True))
            assert kept.where.nbytes <= old.size / 8 + 8
    parcels = packed(moved, [old[each.positions] for old, each in zip(before, moved, strict=True)])
    back = list(unpacked(parcels, [old.dtype for old in before]))
    assert len(back) == len(pieces)
    for old, new, (positions, steps) in zip(before, after, back, strict=True):
        result = old.copy()
        result[positions] += steps
        assert np.array_equal(result, new)


def test_small_steps_take_less_than_two_bytes() -> None:
    rng = np.random.default_rng(0)
    before = rng.integers(0, 1 << 16, 1 << 20).astype("<u2")
    positions = np.flatnonzero(rng.random(before.size) < 0.01).astype(np.uint32)
    moved = Moved(positions, before[positions] + rng.integers(1, 3, positions.size).astype("<u2"))
    assert sum(each.size for each in packed([moved], [before[positions]])) < 2 * positions.size
