"""Packed bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.mask import TensorMask, pack, packed_bytes, unpack


@given(st.lists(st.booleans(), max_size=300))
def test_unpack_undoes_pack(bits: list[bool]) -> None:
    moved = np.array(bits, np.bool_)
    packed = pack(moved)
    assert packed.size == packed_bytes(moved.size)
    assert packed.size % 8 == 0
    assert np.array_equal(unpack(packed, moved.size), moved)
    assert np.unpackbits(packed).sum() == moved.sum()


def test_bit_order_is_little() -> None:
    moved = np.zeros(64, np.bool_)
    moved[[0, 9]] = True
    assert pack(moved).tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_too_few_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="no 9 bits"):
        unpack(np.zeros(1, np.uint8), 9)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 5), (0, 4)])
def test_tensor_mask_counts(shape: tuple[int, ...]) -> None:
    moved = np.arange(int(np.prod(shape))).reshape(shape) % 3 == 0
    mask = TensorMask("w", shape, pack(np.asarray(moved)))
    assert mask.numel == moved.size
    assert mask.nnz == moved.sum()
    assert mask.density == (moved.mean() if moved.size else 0.0)
    assert mask.to_bool().shape == shape
    assert np.array_equal(mask.to_bool(), moved)
