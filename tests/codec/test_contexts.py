"""Every build of the kernels comes to the same cells and flips as NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.base import Grid
from maskreg.codec.contexts import MAX_FACTOR, MAX_RANK, MAX_SCALE, Contexts
from maskreg.codec.subblocks import classify_all
from maskreg.codec.ulp_steps import MIDDLE
from maskreg.native import NUMPY, using


@given(
    st.integers(1, 130) | st.sampled_from([1023, 1024, 1025, 3000]),
    st.integers(1, 130) | st.sampled_from([1000, 1024, 2500]),
    st.sampled_from([0, 1, 2, 3, 16, MAX_RANK - 1, MAX_RANK]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1 << 32),
)
def test_cells_are_those_of_numpy(
    kernels: str, n: int, width: int, rank: int, scaled: bool, extreme: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    column = int(draw.integers(width))
    rows = -(-(column + n) // width)

    def line(most: int, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
        return draw.choice([-most, most] if extreme else np.arange(-most, most + 1), shape).astype(np.int8)

    contexts = Contexts(
        Grid(width, column),
        int(draw.integers(512)),
        line(MAX_SCALE, rows if scaled else 0),
        line(MAX_SCALE, width if scaled else 0),
        line(MAX_FACTOR, rank, rows if rank else 0),
        line(MAX_FACTOR, rank, width if rank else 0),
        draw.choice([0, 1, 700, 4_000, 30_752, 32_767], 7).astype(np.int16),
    )
    source = draw.integers(0, 1 << 16, n).astype(np.uint16)
    # Of a step, whose sign says whether it was flipped.
    tokens, results = np.full(n, MIDDLE + 1, np.uint8), []
    for name in (kernels, NUMPY):
        with using(name):
            keys = np.empty(n, np.uint16)
            classify_all(source, column, contexts, tokens, keys)
            results.append(keys.tolist())
    assert results[0] == results[1]
