"""Classes of bf16 codes, and masks that no noise explains."""

from __future__ import annotations

import numpy as np

from maskreg.mask.rounding import classes_of


def test_every_code_has_its_class(kernels: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    expected = [((c >> 7) & 0xFF) * 2 + (c & 0x7F == 0) for c in range(1 << 16)]
    assert classes_of(codes).tolist() == expected
    for numel in (0, 1, 15, 16, 17, 63, 65):
        assert classes_of(codes[:numel]).tolist() == expected[:numel]
    assert classes_of(codes.reshape(256, 256)).shape == (256, 256)
