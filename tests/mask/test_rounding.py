"""Classes of bf16 codes, and masks that no noise explains."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.mask.rounding import CLASSES, classes_of, why_no_scale


def test_every_code_has_its_class(kernels: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    expected = [((c >> 7) & 0xFF) * 2 + (c & 0x7F == 0) for c in range(1 << 16)]
    assert classes_of(codes).tolist() == expected
    for numel in (0, 1, 15, 16, 17, 63, 65):
        assert classes_of(codes[:numel]).tolist() == expected[:numel]
    assert classes_of(codes.reshape(256, 256)).shape == (256, 256)


@pytest.mark.parametrize(
    ("nnz", "why"),
    [
        (0, "nothing moved"),
        (10, "everything moved"),
        (6, "6 moved, but only 5 are finite, and noise moves no others"),
        (5, ""),
        (1, ""),
    ],
)
def test_which_masks_noise_explains(nnz: int, why: str) -> None:
    members = np.zeros(CLASSES, np.int64)
    members[200], members[-1] = 5, 5
    assert why_no_scale(members, nnz) == why
