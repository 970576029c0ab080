"""Student's t distribution with any number of degrees of freedom."""

from __future__ import annotations

import math
from functools import cache

_TINY = 1e-300
_ENOUGH = 1e-15


@cache
def t975(degrees: float) -> float:
    """The 97.5 % quantile, by bisection."""
    low, high = 0.0, math.pi / 2
    # The angle's tangent is t / sqrt(degrees); 60 halvings leave less than a float distinguishes.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(math.cos(middle) ** 2, degrees) > 0.05 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def two_sided(t: float, degrees: float) -> float:
    """P(abs(T) > abs(t))."""
    return _beyond(degrees / (degrees + t * t), degrees)


def _beyond(x: float, degrees: float) -> float:
    """P(abs(T) > t) with ``x = degrees / (degrees + t^2)``: the incomplete beta function I_x(degrees / 2, 1 / 2).

    By its continued fraction (Lentz), which converges fast where x is below its mean; elsewhere I_x(a, b) is
    1 - I_(1 - x)(b, a) (Abramowitz and Stegun, 26.5.2, 26.5.8 and 26.7.1).
    """
    a, b = degrees / 2, 0.5
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1 - x, b, a)
    return _incomplete_beta(x, a, b)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) as ``x^a (1 - x)^b / (a B(a, b)) / (1 + d1 / (1 + d2 / (1 + ...)))``."""
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    upper, lower = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    fraction = lower
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1.0 / _not_zero(1.0 + term * lower)
            upper = _not_zero(1.0 + term / upper)
            fraction *= lower * upper
        if abs(lower * upper - 1.0) < _ENOUGH:
            break
    return math.exp(front) * fraction / a


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
