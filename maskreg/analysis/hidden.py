"""The overlap of two masks whose runs began off the bf16 grid, at the same weights.

Within a run, after resuming, and from a full-precision source, the weights behind the bf16 codes lie anywhere in their
rounding cells. How near a weight is to the border of its cell does not show in its code, and two runs that begin at the
same weights share it: those near a border flip under any update, in both. So two updates that know nothing of each
other share more coordinates than their rates say::

    c: width of the cell, x: distance to its upper border, uniform in 0..c; s: scale of a Gaussian update
    P(flip | x) = Q(x / s) + Q((c - x) / s)                 p = its mean over x = 2 s/c (phi(0) - phi(c/s) + c/s Q(c/s))
    P(both flip) = mean over x of P_A(flip | x) P_B(flip | x)

Only s / c matters, and p tells it: P(both flip) is a function of the two rates alone, whatever the exponent. For small
rates it is 29 % of p for equal scales, where independent coordinates would have p^2. Q: upper tail of the normal
distribution, phi: its density.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_HALVINGS = 3
_NODES, _WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(10))
_PHI = 1 / math.sqrt(2 * math.pi)


def both_flip(a: Floats, b: Floats) -> Floats:
    """Chance that a coordinate is in both masks, given its rate in each.

    Args:
        a: rates of A, float64 ``[k]`` in 0..1.
        b: rates of B.

    Returns:
        float64 ``[k]``, between a b and the smaller of both; relative error below 1e-9.
    """
    return np.array([_both_flip(*sorted(rates)) for rates in zip(a.tolist(), b.tolist(), strict=True)])


def hidden_scale(rate: float) -> float:
    """s / c at which a coordinate flips at this rate, 0 < rate < 1."""
    # The rate grows with the scale, slower than it: from sqrt(2 / pi) s for small ones on.
    low, high = 0.0, 1.0
    while _rate(high) < rate:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _rate(middle) < rate else (low, middle)
    return high


def _rate(scale: float) -> float:
    edge = 1 / scale
    return 2 * scale * (_PHI - _PHI * math.exp(-edge * edge / 2) + edge * _tail(edge))


@cache
def _both_flip(a: float, b: float) -> float:
    if a <= 0 or b >= 1:
        return max(a, 0.0)
    small, large = hidden_scale(a), hidden_scale(b)
    # Symmetric about the middle of the cell. Panels halve towards the border, to below the smaller scale.
    halvings = _HALVINGS + max(0, math.ceil(-math.log2(small)))
    edges = [0.5 / 2**panel for panel in range(halvings + 1)] + [0.0]
    total = 0.0
    for upper, lower in pairwise(edges):
        half = (upper - lower) / 2
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = lower + half + half * node
            total += half * weight * _flip(x, small) * _flip(x, large)
    return min(2 * total, a)


def _flip(x: float, scale: float) -> float:
    return _tail(x / scale) + _tail((1 - x) / scale)


def _tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2
