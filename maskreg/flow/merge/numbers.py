"""Stored bits as fp32 numbers, and back: rounded to nearest, ties to even; and choices between numbers.

Which coordinates move is close to random, so a branch per coordinate would be mispredicted every other time. Choices
are made with bits instead, which takes a twentieth of the time of NumPy's ``where``::

    values  3F80 3F81    where  True False    mask  FFFF 0000    values & mask  3F80 0000
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.base import Floats
from maskreg.tensors.cast import to_bf16, to_fp32

Bits = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_NUMPY = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def numbers_of(bits: Bits, dtype: str) -> Floats:
    """The values of stored bits; F64 is rounded.

    Args:
        bits: unsigned integers of the dtype's width.
        dtype: BF16, F16, F32 or F64.

    Returns:
        fp32 of the same shape, in memory of its own.
    """
    if dtype == "BF16":
        return to_fp32(bits)  # type: ignore[no-any-return]
    return bits.view(_NUMPY[dtype]).astype(np.float32)


def bits_of(values: Floats, dtype: str) -> Bits:
    """Numbers as they are stored.

    Args:
        values: fp32.
        dtype: BF16, F16, F32 or F64.

    Returns:
        Unsigned integers of the dtype's width.
    """
    if dtype == "BF16":
        return to_bf16(np.ascontiguousarray(values).view(np.uint32), "F32")
    stored = values.astype(_NUMPY[dtype])
    return stored.view(np.dtype(f"<u{stored.itemsize}"))


def kept(values: Floats, where: Bools) -> Floats:
    """fp32 numbers where it is true, and 0 elsewhere."""
    mask = np.negative(where.view(np.int8), dtype=np.int32)
    return np.bitwise_and(values.view(np.int32), mask, out=mask).view(np.float32)


def replace(bits: Bits, new: Bits, where: Bools) -> None:
    """Overwrite unsigned integers with others of the same width, where it is true."""
    mask = np.negative(where.view(np.int8), dtype=np.dtype(f"i{bits.itemsize}")).view(bits.dtype)
    mask &= bits ^ new
    bits ^= mask
