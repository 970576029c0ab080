"""The rounding null: which coordinates move when an update knows nothing of the weights, because bf16 rounds.

A bf16 code flips when an update exceeds half the distance to the neighboring number, so small weights flip first,
under any update. The null is Gaussian noise of one scale for the whole tensor, independent of the weights; a
coordinate's chance to flip then depends on its exponent alone, and on whether its mantissa is 0: below a power of two
the distance is half of that above.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

CLASSES = 512
"""Classes of codes: twice the exponent field, plus 1 where the mantissa is 0."""

FINENESS = 256
"""Scales of the noise are whole powers of 2^(1/256); what is left to the exact number, the draw makes up for."""

_WORDS = 1 << 32
_DIGITS = 40
_LAST = 254
"""Exponent field of the largest finite numbers; what lies above never moves."""


def classes_of(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Class of each bf16 code, uint16 ``[n]``, below 512."""
    classes = np.empty(codes.shape, np.uint16)
    _classify(codes, classes)
    return classes


@kernel
def _classify(codes: npt.NDArray[np.uint16], classes: npt.NDArray[np.uint16]) -> None:
    for i in range(codes.size):
        exponent = (codes[i] >> np.uint16(6)) & np.uint16(0x1FE)
        classes[i] = exponent | np.uint16((codes[i] & np.uint16(0x7F)) == 0)


def flip_chances(scale: int) -> npt.NDArray[np.float64]:
    """Chance to flip by class, float64 ``[512]``, in whole multiples of 2^-32: the same on every machine.

    ``P = Q(up / s) + Q(down / s)`` with ``Q`` the upper tail of the normal distribution, ``up`` and ``down`` half the
    distance to the next larger and the next smaller number, ``s = 2^(scale / 256)``.
    """
    return _chances(scale) / _WORDS


def fit_scale(members: npt.NDArray[np.int64], nnz: int) -> int:
    """The smallest scale, in 256ths of an octave, under which at least ``nnz`` coordinates are expected to flip.

    Args:
        members: int64 ``[512]``, coordinates by class.
        nnz: how many flip.

    Raises:
        ValueError: there is none, see :func:`why_no_scale`.
    """
    if why := why_no_scale(members, nnz):
        raise ValueError(why)
    # Noise from far below the smallest distance to far above the largest.
    low, high = -160 * FINENESS, 160 * FINENESS
    wanted = int(nnz) * _WORDS
    while high - low > 1:
        middle = (low + high) // 2
        if _expected(members, middle) >= wanted:
            high = middle
        else:
            low = middle
    return high


def why_no_scale(members: npt.NDArray[np.int64], nnz: int) -> str:
    """Why no noise explains a mask of one tensor; empty where one does.

    Args:
        members: int64 ``[512]``, coordinates by class.
        nnz: how many flip.
    """
    finite = int(members[: 2 * _LAST + 2].sum())
    if nnz == 0:
        return "nothing moved"
    if nnz == members.sum():
        return "everything moved"
    if nnz > finite:
        return f"{nnz:,} moved, and noise moves finite numbers only, of which there are {finite:,}"
    return ""


def off_grid(dtype: str) -> str:
    """Why there is no rounding null of a source that is stored in another dtype than bf16."""
    return (
        f"the source is stored in {dtype}: its run did not start on the bf16 grid, so how far a code is from flipping "
        "does not follow from the code"
    )


def _expected(members: npt.NDArray[np.int64], scale: int) -> int:
    """How many are expected to flip, in multiples of 2^-32: exact, so that machines cannot differ."""
    present = tuple(np.flatnonzero(members).tolist())
    chances = _chances(scale, present)
    return sum(int(members[kind]) * int(chances[kind]) for kind in present)


def _chances(scale: int, wanted: tuple[int, ...] = tuple(range(CLASSES))) -> npt.NDArray[np.int64]:
    chances = np.zeros(CLASSES, np.int64)
    for kind in wanted:
        exponent, power_of_two = kind >> 1, kind & 1
        if exponent <= _LAST:
            # Half the distance upwards is 2^(exponent - 135); subnormal numbers lie as the smallest normal ones do.
            distance = FINENESS * (max(exponent, 1) - 135) - scale
            narrower = FINENESS if power_of_two and exponent > 1 else 0
            chances[kind] = min(_tail(distance) + _tail(distance - narrower), _WORDS)
    return chances


@cache
def _tail(distance: int) -> int:
    """``Q(2^(distance / 256))`` in multiples of 2^-32, to the nearest."""
    if distance >= 3 * FINENESS:
        return 0
    if distance <= -40 * FINENESS:
        return _WORDS // 2
    with localcontext() as context:
        context.prec = _DIGITS
        x = Decimal(2) ** (Decimal(distance) / FINENESS)
        # Q(x) = 1/2 - phi(x) (x + x^3/3 + x^5/15 + ...): all terms are positive, so nothing cancels.
        term = total = x
        n = 1
        while term > total * Decimal(10) ** -30:
            n += 2
            term = term * x * x / n
            total += term
        density = (-x * x / 2).exp() / (2 * _PI).sqrt()
        return int(((Decimal(1) / 2 - density * total) * _WORDS).to_integral_value())


_PI = Decimal("3.14159265358979323846264338327950288419716939937510")
