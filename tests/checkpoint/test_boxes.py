"""Boxes fill spans, and pieces fill tensors."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskreg.checkpoint.pieces import Box, boxes_of, tiling_fault

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(SHAPES, st.data())
def test_a_span_is_its_boxes_in_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    numel = math.prod(shape)
    start = data.draw(st.integers(0, numel))
    stop = data.draw(st.integers(start, numel))
    numbers = np.arange(numel).reshape(shape)
    boxes = list(boxes_of(shape, start, stop))
    parts = [numbers[tuple(map(slice, box.begin, box.end))].reshape(-1) for box in boxes]
    assert np.array_equal(np.concatenate([*parts, np.empty(0, int)]), np.arange(start, stop))
    assert len(boxes) <= max(1, 2 * len(shape) - 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=6))
def test_a_tiling_is_what_fills_each_element_once(parts: list[tuple[int, int, int, int]]) -> None:
    boxes = [Box((a, b), (c, d)) for a, b, c, d in parts]
    counts = np.zeros((8, 8), int)
    for box in boxes:
        counts[tuple(map(slice, box.begin, box.end))] += 1
    for shape in product((2, 3), (2, 3)):
        inside = counts[: shape[0], : shape[1]]
        outside = any(a + c > shape[0] or b + d > shape[1] for a, b, c, d in parts)
        assert (tiling_fault(shape, boxes) == "") == (not outside and bool((inside == 1).all()))
