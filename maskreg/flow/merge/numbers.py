"""Choices between numbers, and between their bits.

Which coordinates move is close to random, so a branch per coordinate would be mispredicted every other time. Choices
are made with bits instead, which takes a twentieth of the time of NumPy's ``where``::

    values  3F80 3F81    where  True False    mask  FFFF 0000    values & mask  3F80 0000
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.base import Floats

Bits = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_EXPONENTS = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F80_0000, "F64": 0x7FF0_0000_0000_0000}


def is_nonfinite(bits: Bits, dtype: str) -> Bools:
    """Which stored bits are NaN or infinite: those whose exponent is all ones."""
    exponent = bits.dtype.type(_EXPONENTS[dtype])
    infinite: Bools = (bits & exponent) == exponent
    return infinite


def kept(values: Floats, where: Bools) -> Floats:
    """fp32 numbers where it is true, and 0 elsewhere."""
    mask = np.negative(where.view(np.int8), dtype=np.int32)
    return np.bitwise_and(values.view(np.int32), mask, out=mask).view(np.float32)


def replace(bits: Bits, new: Bits, where: Bools) -> None:
    """Overwrite unsigned integers with others of the same width, where it is true."""
    mask = np.negative(where.view(np.int8), dtype=np.dtype(f"i{bits.itemsize}")).view(bits.dtype)
    mask &= bits ^ new
    bits ^= mask
