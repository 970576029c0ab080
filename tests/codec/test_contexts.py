"""Every build of the kernels comes to the cells and flips of FORMAT.md section 5.4."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.base import Grid
from maskreg.codec.contexts import MAX_FACTOR, MAX_RANK, MAX_SCALE, Contexts
from maskreg.codec.subblocks import classify_all
from maskreg.codec.ulp_steps import MIDDLE


@given(
    st.integers(1, 130) | st.sampled_from([1023, 1024, 1025, 3000]),
    st.integers(1, 130) | st.sampled_from([1000, 1024, 2500]),
    st.sampled_from([0, 1, 2, 3, 16, MAX_RANK - 1, MAX_RANK]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1 << 32),
)
def test_cells_are_what_the_format_says(
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
    keys = np.empty(n, np.uint16)
    # Of a step, whose sign says whether it was flipped.
    classify_all(source, column, contexts, np.full(n, MIDDLE + 1, np.uint8), keys)
    row, place = np.divmod(column + np.arange(n), width)
    exponents, flipped = (source >> 7 & 0xFF).astype(int), np.zeros(n, np.bool_)
    cells = np.clip(exponents - contexts.base // 2, 0, 15)
    if scaled:
        shifts = contexts.row_scales[row].astype(int) + contexts.column_scales[place]
        cells = np.clip(2 * exponents - contexts.base - shifts, 0, 31)
    if rank:
        predicted = (contexts.row_factors[:, row].astype(int) * contexts.column_factors[:, place]).sum(axis=0)
        cells = 8 * cells + (np.abs(predicted) >= contexts.bounds[:, None]).sum(axis=0)
        flipped = (predicted < 0) != (source >> 15 == 1)
    assert np.array_equal(keys, cells << 6 | np.where(flipped, MIDDLE - 1, MIDDLE + 1))
