"""Between bf16, fp32, and the fp32 masters of bf16 weights.

Tensors come as bits, uint16 of bf16 or uint32 of fp32, so that copies of frozen values keep even the bits of a NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

QUIET_NAN = 0x7FC0
"""Bits of bf16 that any NaN is rounded to."""

_FULL, _HALF, _LOW = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)


def widen(codes: Codes) -> Floats:
    """Values as fp32; the bits of bf16 are its upper half."""
    if codes.itemsize == 4:
        return codes.view(np.float32)
    return (codes.astype(np.uint32) << _FULL).view(np.float32)


def narrow(values: Floats) -> npt.NDArray[np.uint16]:
    """Bits of the nearest bf16, to even on ties.

    Adding 0x7FFF carries into the upper half if the lower half exceeds a tie, 0x8000; adding the upper half's lowest
    bit too carries on the tie itself if that bit is odd. ``0x3F80_8000 -> 0x3F80``, but ``0x3F81_8000 -> 0x3F82``.
    """
    wide = values.view(np.uint32)
    near = (wide + _HALF + (wide >> _FULL & _LOW)) >> _FULL
    return np.where(np.isnan(values), np.uint32(QUIET_NAN), near).astype(np.uint16)


def take_masters(weights: Codes, masters: Floats) -> Floats:
    """fp32 values of weights: their masters, except where a weight is not what its master rounds to.

    A step leaves every weight as the rounding of its master. One that is anything else was written since, by
    ``load_state_dict`` or an average of weights, and counts: with the master ``0x3F80_4000``, the weight ``0x3F80``
    becomes that, but ``0x3F90`` stays ``0x3F90_0000``. Weights of fp32 have no digits to lose, and all stay.

    Args:
        weights: uint16 or uint32 ``[n]``.
        masters: fp32 ``[n]``.
    """
    if weights.itemsize == 4:
        return widen(weights)
    # No weight is the rounding of a NaN.
    kept = (narrow(masters) == weights) & ~np.isnan(masters)
    return np.where(kept, masters.view(np.uint32), widen(weights).view(np.uint32)).view(np.float32)
