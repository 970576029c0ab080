"""Boxes fill spans, and pieces fill tensors."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.checkpoint.pieces import Box, boxes_of, strides_of, tiling_fault

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


def test_strides() -> None:
    assert strides_of((2, 3, 4)) == (12, 4, 1)
    assert strides_of(()) == ()


@pytest.mark.parametrize(
    ("shape", "boxes", "fault"),
    [
        ((), [Box((), ())], ""),
        ((0, 3), [], ""),
        ((4, 6), [Box((0, 0), (4, 2)), Box((0, 2), (4, 4))], ""),
        ((4, 6), [Box((0, 0), (4, 2)), Box((0, 2), (4, 3))], "its parts have 20 of 24 elements"),
        ((4, 6), [Box((0, 0), (4, 3)), Box((0, 2), (4, 3))], "parts of it overlap"),
        ((4, 6), [Box((0, 0), (2, 6)), Box((3, 0), (2, 6))], "a part of it lies outside its shape"),
        ((), [Box((), ()), Box((), ())], "its parts have 2 of 1 elements"),
    ],
)
def test_tilings(shape: tuple[int, ...], boxes: list[Box], fault: str) -> None:
    assert tiling_fault(shape, boxes) == fault


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
