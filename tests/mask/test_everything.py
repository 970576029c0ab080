from __future__ import annotations

import numpy as np
import pytest

from maskreg.mask.algebra import Everything
from maskreg.mask.packed import TensorMask, pack


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (63,), (64,), (5, 13), (2, 3, 50)])
def test_everything(shape: tuple[int, ...]) -> None:
    one = Everything({"a": shape})["a"]
    expected = TensorMask("a", shape, pack(np.ones(shape, np.bool_)))
    assert np.array_equal(one.packed, expected.packed)
    assert one.shape == shape
