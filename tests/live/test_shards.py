from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskreg.live.shards import Part, cut, layout_of
from maskreg.mask.packed import pack, unpack


@st.composite
def parts(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int, int]:
    shape = tuple(draw(st.lists(st.integers(0, 40), min_size=1, max_size=4)))
    dim = draw(st.integers(0, len(shape) - 1))
    start = draw(st.integers(0, shape[dim]))
    return shape, dim, start, draw(st.integers(start, shape[dim]))


@given(parts(), st.integers(0, 1 << 32), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_a_part_has_the_bits_and_positions_that_slicing_gives(
    kernels: str, part: tuple[tuple[int, ...], int, int, int], seed: int, density: float
) -> None:
    check(*part, seed, density)


@pytest.mark.parametrize(
    ("shape", "dim", "start", "stop"),
    [
        ((100_000,), 0, 0, 50_000),
        ((100_000,), 0, 50_001, 99_999),
        ((300, 301), 0, 77, 200),
        ((70, 1500), 1, 750, 1500),
        ((20, 9000), 1, 4097, 8999),
        ((9, 64, 64), 1, 16, 32),
        ((8192, 3), 1, 2, 3),
    ],
)
def test_parts_of_large_tensors(kernels: str, shape: tuple[int, ...], dim: int, start: int, stop: int) -> None:
    check(shape, dim, start, stop, 5, 0.4)


def check(shape: tuple[int, ...], dim: int, start: int, stop: int, seed: int, density: float) -> None:
    moved = np.random.default_rng(seed).random(shape) < density
    within = (slice(None),) * dim + (slice(start, stop),)
    indexes = [np.arange(start, stop) if each == dim else np.arange(size) for each, size in enumerate(shape)]
    part = Part.of(shape, indexes)
    assert part is not None
    found, order = cut(pack(moved), part)
    expected = moved[within]
    assert np.array_equal(found, pack(expected))
    assert np.array_equal(unpack(found, expected.size), expected.reshape(-1))
    numbers = np.where(moved.reshape(-1), moved.reshape(-1).cumsum() - 1, -1).reshape(shape)
    assert order.total == moved.sum()
    assert np.array_equal(order.positions(), numbers[within][expected])


def test_a_plain_tensor_is_all_here() -> None:
    layout = layout_of("weight", torch.zeros(3, 5))
    assert layout.part == Part.whole(15)
    assert layout.group is None
    moved = np.arange(15) % 2 == 0
    found, order = cut(pack(moved), layout.part)
    assert np.array_equal(found, pack(moved))
    assert order.positions().tolist() == list(range(8))


def test_a_mask_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\b8\b.*\b65\b"):
        cut(np.zeros(8, np.uint8), Part.whole(65))
