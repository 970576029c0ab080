from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.mask import TensorMask, pack
from maskreg.mask.algebra import OPERATIONS, Everything, at_least

Dense = npt.NDArray[np.bool_]


@st.composite
def several(draw: st.DrawFn, fewest: int = 2, most: int = 9) -> list[Dense]:
    """Masks of one tensor, of sizes on both sides of a word, of any density."""
    numel = draw(st.sampled_from([0, 1, 63, 64, 65, 130, 1000, 4096, 4097, 9000]))
    count = draw(st.integers(fewest, most))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    return [rng.random(numel) < draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])) for _ in range(count)]


def packed(masks: list[Dense]) -> list[npt.NDArray[np.uint8]]:
    return [pack(mask) for mask in masks]


@given(several())
def test_every_operation_is_that_of_booleans(masks: list[Dense]) -> None:
    dense = np.array(masks)
    expected = {
        "and": dense.all(axis=0),
        "or": dense.any(axis=0),
        "minus": dense[0] & ~dense[1:].any(axis=0),
        "xor": dense.sum(axis=0) % 2 == 1,
    }
    assert expected.keys() == OPERATIONS.keys()
    for how, operation in OPERATIONS.items():
        # Packed again, so that padding is seen to stay zero.
        np.testing.assert_array_equal(operation(packed(masks)), pack(expected[how]), err_msg=how)


@given(several(fewest=1, most=17), st.data())
def test_at_least_k_is_a_count(kernels: str, masks: list[Dense], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(masks)))
    np.testing.assert_array_equal(at_least(k, packed(masks)), pack(np.sum(masks, axis=0) >= k))


@pytest.mark.parametrize("count", [255, 256])
def test_hundreds_of_masks_are_counted(kernels: str, count: int) -> None:
    masks = [np.random.default_rng(seed).random(200) < 0.5 for seed in range(count)]
    for k in (1, 127, 128, count):
        np.testing.assert_array_equal(at_least(k, packed(masks)), pack(np.sum(masks, axis=0) >= k))


@pytest.mark.parametrize("k", [0, 3, -1])
def test_a_count_of_none_or_of_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=rf"{k} of 2 "):
        at_least(k, packed([np.ones(5, np.bool_)] * 2))


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (63,), (64,), (5, 13), (2, 3, 50)])
def test_everything(shape: tuple[int, ...]) -> None:
    one = Everything({"a": shape})["a"]
    expected = TensorMask("a", shape, pack(np.ones(shape, np.bool_)))
    assert np.array_equal(one.packed, expected.packed)
    assert one.shape == shape
