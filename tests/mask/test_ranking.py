"""The smallest magnitudes, with ties by place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.mask import pack, unpack
from maskreg.mask.ranking import MAGNITUDES, Smallest, count_magnitudes, places_of, smallest


@given(st.lists(st.integers(0, (1 << 16) - 1) | st.sampled_from([0, 0x8000, 0x3F80, 0xBF80]), max_size=200), st.data())
def test_against_a_stable_sort(kernels: str, values: list[int], data: st.DataObject) -> None:
    codes = np.array(values, np.uint16)
    wanted = data.draw(st.integers(0, codes.size))
    counts = np.zeros(MAGNITUDES, np.int64)
    count_magnitudes(codes, counts)
    which = smallest(counts, wanted)
    places = places_of(codes, which.border) if which.ties else np.empty(0, np.int64)
    which = which._replace(cut=int(places[which.ties - 1]) + 1 if which.ties else 0)
    expected = np.zeros(codes.size, np.bool_)
    expected[np.argsort(codes & 0x7FFF, kind="stable")[:wanted]] = True
    # In one run, and in runs of 64.
    assert np.array_equal(unpack(which.packed(0, codes), codes.size), expected)
    for start in range(0, codes.size, 64):
        run = codes[start : start + 64]
        assert np.array_equal(unpack(which.packed(start, run), run.size), expected[start : start + 64])


@pytest.mark.parametrize("numel", [0, 1, 3, 4, 5, 63, 64, 65, 4095, 4096, 4097, 20_001])
def test_long_spans_are_what_a_dense_comparison_gives(kernels: str, numel: int) -> None:
    codes = np.random.default_rng(numel).integers(0, 1 << 16, numel).astype(np.uint16)
    counts = np.full(MAGNITUDES, 3, np.int64)
    count_magnitudes(codes, counts)
    assert np.array_equal(counts - 3, np.bincount(codes & 0x7FFF, minlength=MAGNITUDES))
    for which in (Smallest(0x3C00, 0), Smallest(0x3C00, 100, 100), Smallest(0, 3, 4100), Smallest(0x7FFF, 5, 1 << 40)):
        ties = np.arange(numel) < which.cut - 64
        expected = (codes & 0x7FFF < which.border) | ties & (codes & 0x7FFF == which.border)
        assert np.array_equal(which.packed(64, codes), pack(expected))
