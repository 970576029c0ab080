"""The rounding null: which coordinates would move if the update knew nothing of the weights, because bf16 rounds.

A bf16 code flips when the update exceeds half the distance to the neighboring number, so small weights flip first,
under any update. The null is Gaussian noise of one scale s for the whole tensor, independent of the weights. A
coordinate's chance to flip then depends on its exponent alone, and on whether its mantissa is 0: below a power of two
numbers are twice as dense as above.

    P(flip) = Q(up / s) + Q(down / s)       Q: upper tail of the normal distribution; up, down: half the distances

    s = 2^-8.   1.5: up = down = 2^-8, P = 2 Q(1) = .317.    1.0: up = 2^-8, down = 2^-9, P = Q(1) + Q(.5) = .467

The scale is fitted so that as many coordinates flip, on average, as moved; then :mod:`maskreg.mask.draw` draws exactly
that many with these chances as weights. Draws must be the same on every machine, and libraries' error functions are
not in their last digits: so Q is rounded to multiples of 2^-32, in decimal arithmetic where those digits could decide
which one is nearest, and sums are of integers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from maskreg.native import library
from maskreg.rules import parse_rule

CLASSES = 512
"""Classes of codes: twice the exponent field, plus 1 where the mantissa is 0."""

FINENESS = 256
"""Scales are powers of 2^(1/256), which is close enough: the draw is of an exact number anyway."""

_WORDS = 1 << 32
_DIGITS = 40
_DOUBT = 1e-3
_LAST = 254
"""Exponent field of the largest finite numbers; infinities and NaNs never move."""


def classes_of(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Class of each bf16 code, uint16 ``[n]``, below 512."""
    classes = np.empty(codes.shape, np.uint16)
    if compiled := library():
        compiled.lib.maskreg_classify_codes(compiled.read(codes), codes.size, compiled.write(classes))
    else:
        classes[...] = codes >> 6 & 0x1FE | (codes & 0x7F == 0)
    return classes


def flip_chances(scale: int) -> npt.NDArray[np.float64]:
    """Chance to flip by class, float64 ``[512]``, multiples of 2^-32.

    Args:
        scale: of the noise, ``s = 2^(scale / 256)``.
    """
    return _chances(scale) / _WORDS


def fit_scale(members: npt.NDArray[np.int64], nnz: int) -> int:
    """The smallest scale, in 256ths of an octave, at which at least ``nnz`` coordinates flip on average.

    Args:
        members: int64 ``[512]``, coordinates by class.
        nnz: how many moved.

    Raises:
        ValueError: there is none; see :func:`why_no_scale`.
    """
    if why := why_no_scale(members, nnz):
        raise ValueError(why)
    present = np.flatnonzero(members[: 2 * _LAST + 2])
    counts = members[present]
    # Bisection, from a scale at which nothing flips to one at which all that is finite does.
    low, high = int(_DOWN[present].min()) - _FARTHEST, int(_UP[present].max()) - _NEAREST
    goal = int(nnz) * _WORDS
    while high - low > 1:
        middle = (low + high) // 2
        if _expected(counts, present, middle) >= goal:
            high = middle
        else:
            low = middle
    return high


def why_no_scale(members: npt.NDArray[np.int64], nnz: int) -> str:
    """Why no noise explains the mask of a tensor; empty when some does.

    Args:
        members: int64 ``[512]``, coordinates by class.
        nnz: how many moved.
    """
    finite = int(members[: 2 * _LAST + 2].sum())
    if nnz == 0:
        return "nothing moved"
    if nnz == members.sum():
        return "everything moved"
    if nnz > finite:
        return f"{nnz:,} moved, but only {finite:,} are finite, and noise moves no others"
    return ""


def hidden_flips(rule: str) -> str:
    """Why there is no rounding null under a rule that drops small changes; empty for the other rules."""
    return "" if parse_rule(rule).keeps_target else f"rule {rule} hides flips, especially those of small weights"


def off_grid(dtype: str) -> str:
    """Why there is no rounding null for a source that is not stored in bf16."""
    return (
        f"the source is stored in {dtype}: training did not start on the bf16 grid, so a code does not tell how far it "
        "is from flipping"
    )


def _expected(members: npt.NDArray[np.int64], classes: npt.NDArray[np.int64], scale: int) -> int:
    """How many of ``members`` coordinates of each of ``classes`` flip on average, in multiples of 2^-32, exactly."""
    chances = _chances(scale, classes)
    # In halves, whose products with fewer than 2^47 coordinates fit 64 bits.
    upper, lower = members @ (chances >> 16), members @ (chances & 0xFFFF)
    return (int(upper) << 16) + int(lower)


def _chances(scale: int, classes: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Chance to flip of each class, of all by default, in multiples of 2^-32."""
    up, down = (_UP, _DOWN) if classes is None else (_UP[classes], _DOWN[classes])
    chances: npt.NDArray[np.int64] = np.minimum(_tails(up - scale) + _tails(down - scale), _WORDS)
    return chances


def _tails(distances: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``Q(2^(distance / 256))`` of each, in multiples of 2^-32; computed once for each distance."""
    # Not np.clip, which takes longer to look up the range of integers than this does in all.
    indices = np.minimum(np.maximum(distances, _NEAREST), _FARTHEST) - _NEAREST
    tails: npt.NDArray[np.int64] = _TAILS[indices]
    if tails.min(initial=0) < 0:
        for index in np.unique(indices[tails < 0]).tolist():
            _TAILS[index] = _tail(index + _NEAREST)
        tails = _TAILS[indices]
    return tails


def _half_distances() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Half the distance from the numbers of each class to the next one up and down, in 256ths of an octave."""
    exponents, powers_of_two = np.arange(CLASSES) >> 1, np.arange(CLASSES) & 1
    # Upwards it is 2^(exponent - 135); subnormals are spaced like the smallest normal numbers.
    up = FINENESS * (np.maximum(exponents, 1) - 135)
    down = up - np.where((powers_of_two == 1) & (exponents > 1), FINENESS, 0)
    finite = exponents <= _LAST
    return np.where(finite, up, _NEVER), np.where(finite, down, _NEVER)


_FARTHEST, _NEAREST = 3 * FINENESS, -40 * FINENESS
"""Distances from and up to which the tail is 0 and 1/2."""
_NEVER = 1 << 40
_UP, _DOWN = _half_distances()
_TAILS = np.full(_FARTHEST - _NEAREST + 1, -1, np.int64)


def _tail(distance: int) -> int:
    """``Q(2^(distance / 256))`` in multiples of 2^-32, to the nearest."""
    if distance >= _FARTHEST:
        return 0
    if distance <= _NEAREST:
        return _WORDS // 2
    words = _WORDS / 2 * math.erfc(2 ** (distance / FINENESS) / math.sqrt(2))
    # Error functions of all libraries are right to less than a millionth of a multiple.
    return round(words) if abs(words % 1 - 0.5) > _DOUBT else round_exactly(distance)


def round_exactly(distance: int) -> int:
    """``Q(2^(distance / 256))`` in multiples of 2^-32, to the nearest; slow.

    Args:
        distance: between those at which it is 0 and 1/2.
    """
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = _DIGITS
        x = Decimal(2) ** (Decimal(distance) / FINENESS)
        # Q(x) = 1/2 - phi(x) (x + x^3/3 + x^5/15 + ...). All terms of the series are positive, so nothing cancels.
        term = total = x
        n = 1
        while term > total * Decimal(10) ** -30:
            n += 2
            term = term * x * x / n
            total += term
        density = (-x * x / 2).exp() / (2 * Decimal(_PI)).sqrt()
        return int(((Decimal(1) / 2 - density * total) * _WORDS).to_integral_value())


_PI = "3.14159265358979323846264338327950288419716939937510"
