"""The cast to bf16."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.tensors.cast import to_bf16


@pytest.mark.torch
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_fp32_rounds_like_torch(values: list[float]) -> None:
    import torch

    numbers = np.array(values, np.float32)
    ours = to_bf16(numbers.view(np.uint32), "F32")
    theirs = torch.from_numpy(numbers).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(ours, theirs)


def test_ties_go_to_even() -> None:
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32)
    assert to_bf16(ties, "F32").tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_nan_stays_nan_and_keeps_its_sign() -> None:
    nans = np.array([0x7F810001, 0xFF800001, 0x7FFFFFFF, 0xFFC12345], np.uint32)
    cast = to_bf16(nans, "F32")
    assert cast.tolist() == [0x7FC1, 0xFFC0, 0x7FFF, 0xFFC1]


@pytest.mark.torch
def test_every_half_is_cast_like_torch() -> None:
    import torch

    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    ours = to_bf16(halves, "F16")
    theirs = torch.from_numpy(halves.view(np.float16)).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    nan = np.isnan(halves.view(np.float16))
    assert np.array_equal(ours[~nan], theirs[~nan])
    assert ((ours[nan] & 0x7F80) == 0x7F80).all() and ((ours[nan] & 0x7F) != 0).all()


def test_double_and_bf16() -> None:
    assert to_bf16(np.array([1.0, 1e300]).view(np.uint64), "F64").tolist() == [0x3F80, 0x7F80]
    same = np.array([0x7F81], np.uint16)
    assert to_bf16(same, "BF16") is same


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="I32"):
        to_bf16(np.zeros(1, np.uint32), "I32")
