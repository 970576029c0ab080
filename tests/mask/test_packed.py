"""Packed bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.mask import TensorMask, overlap, pack, packed_bytes, unpack


@given(st.lists(st.booleans(), max_size=300))
def test_unpack_undoes_pack(bits: list[bool]) -> None:
    moved = np.array(bits, np.bool_)
    packed = pack(moved)
    assert packed.size == packed_bytes(moved.size)
    assert packed.size % 8 == 0
    assert np.array_equal(unpack(packed, moved.size), moved)
    assert np.unpackbits(packed).sum() == moved.sum()


@given(st.integers(0, 2**32), st.integers(0, 3_000_000), st.floats(0, 1))
@settings(max_examples=10)
def test_overlap_counts_what_both_have(kernels: str, seed: int, numel: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    one, other = (rng.random(numel) < density for _ in range(2))
    assert overlap(pack(one), pack(other)) == np.count_nonzero(one & other)


def test_bit_order_is_little() -> None:
    moved = np.zeros(64, np.bool_)
    moved[[0, 9]] = True
    assert pack(moved).tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 5), (0, 4)])
def test_tensor_mask_counts(kernels: str, shape: tuple[int, ...]) -> None:
    moved = np.arange(int(np.prod(shape))).reshape(shape) % 3 == 0
    mask = TensorMask("w", shape, pack(np.asarray(moved)))
    assert mask.numel == moved.size
    assert mask.nnz == moved.sum()
    assert mask.density == (moved.mean() if moved.size else 0.0)
    assert mask.to_bool().shape == shape
    assert np.array_equal(mask.to_bool(), moved)
