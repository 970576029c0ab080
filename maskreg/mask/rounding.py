"""Which masks of a tensor rounding to bf16 alone could have made: classes of codes, and the chance of each to flip.

A bf16 code flips when an update takes the weight out of its rounding cell. How wide that is depends on the exponent
alone, and on whether the mantissa is 0: below a power of two numbers are twice as dense as above. So these are the
classes of weights that rounding treats alike.

The rounding null is the chance of every weight to flip if the update knew nothing of it. The noise is Gaussian noise of
one scale s for the whole tensor, independent of the weights. Small weights flip first, as their rounding cells are
narrow. Where in its cell a weight starts makes two models::

    up, down    half the distances to the next numbers      c = up + down    width of the cell
    Q           upper tail of the normal distribution       phi              its density

    on the grid     at the number itself         P(flip) = Q(up / s) + Q(down / s)
    off the grid    anywhere in the cell         P(flip) = 2 (phi(0) - phi(c / s)) s / c + 2 Q(c / s)

    s = 2^-8.  1.5: up = down = 2^-8, c = 2^-7.  On the grid P = 2 Q(1) = .317, off it P = .345 + 2 Q(2) = .390
               1.0: up = 2^-8, down = 2^-9.      On the grid P = Q(1) + Q(.5) = .467

The scale is such that as many coordinates are expected to flip as moved. For expectations it is solved to the last
digits (:func:`fit_flips`). Draws must be the same on every machine, and the last digits of error functions are not. So
draws have scales of their own (:func:`fit_scale`), powers of 2^(2^-20), and chances that are multiples of 2^-32
(:func:`drawing_chances`): rounded to the nearest, in decimal arithmetic where the last digits could decide which that
is, and added up as integers. :mod:`maskreg.mask.draw` draws exactly as many as moved with these chances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from maskreg.native import library
from maskreg.tensors.rules import parse_rule

CLASSES = 512
"""Classes of codes: twice the exponent field, plus 1 where the mantissa is 0."""

FINITE_CLASSES = 510
"""Classes below this are of finite numbers; infinities and NaNs never move."""


def classes_of(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Class of each bf16 code, uint16 ``[n]``, below 512."""
    classes = np.empty(codes.shape, np.uint16)
    compiled = library()
    compiled.lib.maskreg_classify_codes(compiled.read(codes), codes.size, compiled.write(classes))
    return classes


def why_no_scale(members: npt.NDArray[np.int64], nnz: int) -> str:
    """Why no noise explains the mask of a tensor, given its coordinates by class; empty when some does."""
    finite = int(members[:FINITE_CLASSES].sum())
    if nnz == 0:
        return "nothing moved"
    if nnz == members.sum():
        return "everything moved"
    if nnz > finite:
        return f"{nnz:,} moved, but only {finite:,} are finite, and noise moves no others"
    return ""


def hidden_flips(rule: str) -> str:
    """Why there is no rounding null under a rule that drops small changes; empty for the other rules."""
    return "" if parse_rule(rule).keeps_target else f"rule {rule} hides flips, especially of small weights"


def off_grid(dtype: str) -> str:
    """Why there is no rounding null for a source that is not stored in bf16."""
    return (
        f"the source is stored in {dtype}: training did not start on the bf16 grid, so a code does not tell how far it "
        "is from flipping"
    )


FINENESS = 1 << 20
"""Scales of draws are powers of 2^(1/FINENESS)."""

WORDS = 1 << 32
"""Chances of draws are multiples of 1/WORDS."""

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_DIGITS = 40
_DOUBT = 1e-3
_PHI = 1 / math.sqrt(2 * math.pi)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")
# Beyond 2^_NOTHING cells or scales, a chance is 0 or 1 to all digits.
_NOTHING = 60


@dataclass(frozen=True)
class Start:
    """Where in its rounding cell a weight starts.

    Attributes:
        chances: from ``up / s`` and ``down / s``, float64 ``[k]`` each: chances to flip, and their derivatives by the
            logarithm of s.
        words: from the logarithm of ``up / s``, in FINENESS-ths of an octave, and from whether ``down`` is half of
            ``up``: the chance in multiples of 2^-32, the same on every machine.
    """

    chances: Callable[[Floats, Floats], tuple[Floats, Floats]]
    words: Callable[[int, bool], int]


def fit_flips(members: Counts, nnz: int, start: Start | None = None) -> Floats:
    """Chance of each class to be in a mask of one tensor that rounding alone made, float64 ``[512]``.

    Their sum over the coordinates is ``nnz`` but for a relative error below 1e-12. An empty or full mask tells nothing
    of a scale: its chances are 0 or 1. Classes without coordinates have 0. ``start`` is :data:`ON_GRID` if left out.
    """
    if nnz in (0, int(members.sum())):
        return np.full(members.size, float(nnz > 0))
    present, scale = _fit(members, nnz, start or ON_GRID)
    chances = np.zeros(CLASSES)
    chances[present] = (start or ON_GRID).chances(_UP[present] / scale, _DOWN[present] / scale)[0]
    return chances


def fit_scale(members: Counts, nnz: int, start: Start | None = None) -> int:
    """The smallest scale k of a draw, ``s = 2^(k / FINENESS)``, at which at least ``nnz`` flip on average."""
    start = start or ON_GRID
    present, scale = _fit(members, nnz, start)
    counts, goal = members[present], int(nnz) * WORDS

    def enough(scale: int) -> bool:
        return _expected(counts, _words(present, scale, start)) >= goal

    # The floating-point solution is next to the answer; which one that is, whole numbers decide.
    high = math.ceil(math.log2(scale) * FINENESS)
    step = 1
    while not enough(high):
        high, step = high + step, 2 * step
    low, step = high - 1, 1
    while enough(low):
        low, high, step = low - step, low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def drawing_chances(scale: int, start: Start | None = None) -> Floats:
    """Chance to flip by class at a scale of the noise, float64 ``[512]``, multiples of 2^-32.

    They are the same on every machine.
    """
    words = np.zeros(CLASSES)
    words[:FINITE_CLASSES] = _words(np.arange(FINITE_CLASSES), scale, start or ON_GRID)
    return words / WORDS


def _fit(members: Counts, nnz: int, start: Start) -> tuple[Counts, float]:
    """Finite classes that occur, and the scale at which ``nnz`` coordinates flip on average.

    Newton's method on the logarithms of both, which are nearly proportional, within a bracket that bisection narrows
    where a step leaves it or gains too little.
    """
    if why := why_no_scale(members, nnz):
        raise ValueError(why)
    present = np.flatnonzero(members[:FINITE_CLASSES])
    counts, up, down = members[present].astype(np.float64), _UP[present], _DOWN[present]
    low, high = (float(ends) for ends in (down.min() * 2.0**-_NOTHING, up.max() * 2.0**_NOTHING))
    scale, last = math.sqrt(low) * math.sqrt(high), math.inf
    while True:
        chances, slopes = start.chances(up / scale, down / scale)
        expected = float(counts @ chances)
        if expected == nnz:
            break
        low, high = (scale, high) if expected < nnz else (low, scale)
        miss, slope = math.log(expected / nnz) if expected > 0 else -math.inf, float(counts @ slopes)
        step = -miss * expected / slope if slope > 0 and abs(miss) < last / 2 else math.inf
        inside = math.log(low / scale) < step < math.log(high / scale)
        following = scale * math.exp(step) if inside else math.sqrt(low) * math.sqrt(high)
        last = abs(miss)
        if following in (low, high, scale):
            break
        scale = following
    return present, scale


def off_grid_chance(cell: float) -> float:
    """Chance to flip off the grid, given the width of the rounding cell over s."""
    return 2 * _rise(cell) + math.erfc(cell / math.sqrt(2))


def _rise(cell: float) -> float:
    """``(phi(0) - phi(cell)) / cell``, without cancellation."""
    return -_PHI * math.expm1(-cell * cell / 2) / cell


def _on_grid(up: Floats, down: Floats) -> tuple[Floats, Floats]:
    sides = np.stack([up, down]) / math.sqrt(2)
    tails = np.array([[math.erfc(side) for side in row] for row in sides.tolist()]) / 2
    slopes = 2 * _PHI * sides * np.exp(-sides * sides) / math.sqrt(2)
    return tails.sum(0), slopes.sum(0)


def _off_grid(up: Floats, down: Floats) -> tuple[Floats, Floats]:
    cells = (up + down).tolist()
    return np.array([off_grid_chance(cell) for cell in cells]), np.array([2 * _rise(cell) for cell in cells])


def _expected(members: Counts, words: Counts) -> int:
    """How many coordinates flip on average, in multiples of 2^-32, exactly."""
    # In halves, whose products with fewer than 2^47 coordinates fit 64 bits.
    upper, lower = members @ (words >> 16), members @ (words & 0xFFFF)
    return (int(upper) << 16) + int(lower)


def _words(classes: Counts, scale: int, start: Start) -> Counts:
    exponents, halved = np.maximum(classes >> 1, 1) - 135, _HALVED[classes]
    sides = zip((FINENESS * exponents - scale).tolist(), halved.tolist(), strict=True)
    return np.array([start.words(*side) for side in sides], np.int64)


def _on_grid_words(up: int, halved: bool) -> int:
    tail = tail_words(up)
    return tail + (tail_words(up - FINENESS) if halved else tail)


def tail_words(distance: int) -> int:
    """``Q(2^(distance / FINENESS))`` in multiples of 2^-32, to the nearest."""
    words = WORDS / 2 * math.erfc(2.0 ** min(distance / FINENESS, _NOTHING) / math.sqrt(2))
    return _nearest(words, lambda: _exact_tail(_exact_power(distance)))


def off_grid_words(up: int, halved: bool) -> int:
    """Chance to flip off the grid in multiples of 2^-32, to the nearest; see :class:`Start`."""
    cell = (1.5 if halved else 2.0) * 2.0 ** min(max(up / FINENESS, -_NOTHING), _NOTHING)
    words = WORDS * off_grid_chance(cell)

    def exactly() -> Decimal:
        width = _exact_power(up) * (Decimal("1.5") if halved else 2)
        density = 1 / (2 * _PI).sqrt()
        return 2 * (density * (1 - (-width * width / 2).exp()) / width + _exact_tail(width))

    return _nearest(words, exactly)


def _nearest(words: float, exactly: Callable[[], Decimal]) -> int:
    # Error functions and powers of all libraries are right to less than a hundred-thousandth of a multiple.
    if abs(words % 1 - 0.5) > _DOUBT:
        return round(words)
    with localcontext() as context:
        context.prec = _DIGITS
        return int((exactly() * WORDS).to_integral_value())


def _exact_power(distance: int) -> Decimal:
    return Decimal(2) ** (Decimal(distance) / FINENESS)


def _exact_tail(x: Decimal) -> Decimal:
    """``Q(x)`` in decimal arithmetic; slow."""
    if x > 16:
        return Decimal(0)
    # Q(x) = 1/2 - phi(x) (x + x^3/3 + x^5/15 + ...). All terms of the series are positive, so nothing cancels in it.
    term = total = x
    n = 1
    while term > total * Decimal(10) ** -30:
        n += 2
        term = term * x * x / n
        total += term
    return Decimal(1) / 2 - (-x * x / 2).exp() / (2 * _PI).sqrt() * total


def _half_distances() -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Half the distances from the numbers of each finite class to the next one up and down, and where these differ."""
    classes = np.arange(FINITE_CLASSES)
    exponents = classes >> 1
    # Below a power of two numbers are twice as dense; subnormals are spaced like the smallest normal numbers.
    halved = (classes & 1 == 1) & (exponents > 1)
    up = np.ldexp(1.0, np.maximum(exponents, 1) - 135)
    return up, np.where(halved, up / 2, up), halved


_UP, _DOWN, _HALVED = _half_distances()

ON_GRID = Start(_on_grid, _on_grid_words)
"""At the number itself: the source is what training started from, bit for bit."""

OFF_GRID = Start(_off_grid, off_grid_words)
"""Anywhere in its rounding cell, each place as likely as the next: within a run, or from full precision."""
