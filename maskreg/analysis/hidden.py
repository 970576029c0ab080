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
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from maskreg.mask.flips import off_grid_chance

Floats = npt.NDArray[np.float64]

_HALVINGS = 3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_SLOPE = math.sqrt(2 / math.pi)
_PRECISION = 1e-15


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
    # The rate is concave in the scale, sqrt(2 / pi) s at first: so Newton's steps from below never pass the solution.
    scale = rate * math.sqrt(math.pi / 2)
    for _ in range(200):
        # Its slope is 2 (phi(0) - phi(c/s)).
        step = (rate - off_grid_chance(1 / scale)) / (-_SLOPE * math.expm1(-0.5 / scale**2))
        if step <= scale * _PRECISION:
            break
        scale += step
    return scale


# The expectation and its derivatives ask for the same pairs.
@lru_cache(maxsize=1 << 12)
def _both_flip(a: float, b: float) -> float:
    if a <= 0 or b >= 1:
        return max(a, 0.0)
    small, large = hidden_scale(a), hidden_scale(b)
    x, weights = _nodes(_HALVINGS + max(0, math.ceil(-math.log2(small))))
    return min(float(weights @ (_flips(x, small) * _flips(x, large))), a)


@lru_cache(maxsize=1 << 6)
def _nodes(halvings: int) -> tuple[Floats, Floats]:
    """Nodes and weights of a mean over the cell, which is symmetric about its middle."""
    # Panels halve towards the border, to below the smaller scale.
    edges = [0.5 / 2**panel for panel in range(halvings + 1)] + [0.0]
    halves = [((upper - lower) / 2, (upper + lower) / 2) for upper, lower in pairwise(edges)]
    return (
        np.concatenate([middle + half * _NODES for half, middle in halves]),
        np.concatenate([2 * half * _WEIGHTS for half, _ in halves]),
    )


def _flips(x: Floats, scale: float) -> Floats:
    sides = np.concatenate([x, 1 - x]) / (scale * math.sqrt(2))
    tails = np.array(list(map(math.erfc, sides.tolist()))) / 2
    return tails[: x.size] + tails[x.size :]
