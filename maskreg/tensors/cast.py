"""Stored bits as numbers, and back; the cast to bf16 before every comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_EXPONENT = 0x7F80
_NUMPY = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def to_bf16(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.uint16]:
    """bf16 codes of numbers, rounded to nearest, ties to even.

    F64 is rounded to fp32 first, as PyTorch does. A NaN keeps its sign and leading payload bits and becomes quiet;
    libraries disagree about payloads, so a wider target is hashed after this cast.

    Nearest even without branches: the upper 16 bits of an fp32 number are its truncation. Adding 0x7FFF to the lower
    half carries when that half is above 0x8000; adding the last kept bit also makes a tie (exactly 0x8000) carry when
    that bit is odd::

        0x3F80_8000  tie, last bit 0: + 0x7FFF = 0x3F80_FFFF -> 0x3F80   stays even
        0x3F81_8000  tie, last bit 1: + 0x8000 = 0x3F82_0000 -> 0x3F82   up to even

    ``dtype``: BF16, F16, F32 or F64.

    Returns uint16 of the same shape; ``bits`` itself for BF16.
    """
    if dtype == "BF16":
        return bits
    if dtype == "F16":
        bits = bits.view(np.float16).astype(np.float32).view(np.uint32)
    elif dtype == "F64":
        with np.errstate(over="ignore"):  # beyond fp32 is infinity
            bits = bits.view(np.float64).astype(np.float32).view(np.uint32)
    elif dtype != "F32":
        raise ValueError(f"{dtype} cannot be cast to bf16")
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(nan, (bits >> 16) | 0x40, rounded).astype(np.uint16)


def to_fp32(codes: Any) -> Any:
    """The values of bf16 codes, of numpy or torch, as fp32 of the same shape and library; exactly."""
    if isinstance(codes, np.ndarray):
        return (codes.astype(np.uint32) << 16).view(np.float32)
    import torch

    return codes.view(torch.bfloat16).float()


def to_float(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """The values of stored bits as float64 of the same shape. ``dtype``: BF16, F16, F32 or F64."""
    if dtype == "BF16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(_NUMPY[dtype]).astype(np.float64)


def fp32_of(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float32]:
    """The values of stored bits as fp32 of the same shape, in memory of its own; F64 is rounded."""
    if dtype == "BF16":
        return to_fp32(bits)  # type: ignore[no-any-return]
    return bits.view(_NUMPY[dtype]).astype(np.float32)


def stored_bits(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """fp32 numbers as they are stored: unsigned integers of the dtype's width, rounded to nearest, ties to even."""
    if dtype == "BF16":
        return to_bf16(np.ascontiguousarray(values).view(np.uint32), "F32")
    stored = values.astype(_NUMPY[dtype])
    return stored.view(np.dtype(f"<u{stored.itemsize}"))


def is_finite(codes: Any) -> Any:
    """Which bf16 codes are neither NaN nor infinite: booleans of the same kind and shape."""
    return (codes & _EXPONENT) != _EXPONENT
