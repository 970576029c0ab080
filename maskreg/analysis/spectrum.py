"""How an update's energy lies over its singular values: rank figures that need no singular vectors.

Source: "Dense Supervision, Sparse Updates" (arXiv 2606.13657), whose code computes most of these. Every function takes
singular values as a float64 array ``[r]`` in falling order.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

TOP = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of directions whose share of the energy is told."""

TOP_PERCENT = (1, 5, 10)
"""Percent of all directions, likewise."""

TOLERANCES = (1e-6, 1e-5, 1e-4)
"""A direction counts for the numerical rank when its singular value exceeds this share of the largest."""

HILL_K = 10
"""Singular values that the Hill estimate looks at."""


def stable_rank(values: Values, energy: float) -> float | None:
    """``||dW||_F^2 / sigma_1^2``; None for an update of nothing.

    Args:
        values: singular values; the first is enough.
        energy: ``||dW||_F^2``.
    """
    return energy / float(values[0]) ** 2 if values.size and values[0] > 0 else None


def top_energy(values: Values, energy: float, k: int) -> float | None:
    """Share of the energy in the ``k`` largest directions; None when fewer are known, or for an update of nothing."""
    if k > values.size or energy <= 0:
        return None
    return min(1.0, float(np.square(values[:k]).sum()) / energy)


def share_of_ranks(size: int, percent: int) -> int:
    """How many directions ``percent`` % of ``size`` are: rounded up, at least one."""
    return max(1, -(-size * percent // 100))


def effective_rank(values: Values) -> float | None:
    """``exp(-sum p ln p)`` with ``p = sigma / sum sigma`` (of sigma, not of its square); None for nothing."""
    total = values.sum()
    if total <= 0:
        return None
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def numerical_rank(values: Values, tolerance: float) -> float | None:
    """Share of directions with ``sigma > tolerance * sigma_1``, 0 to 1; None for nothing."""
    if not values.size or values[0] <= 0:
        return None
    return float((values > tolerance * values[0]).mean())


def rank_for_energy(values: Values, share: float = 0.99) -> int | None:
    """Smallest number of directions that hold at least ``share`` of the energy; None for nothing."""
    squares = np.cumsum(np.square(values))
    if not squares.size or squares[-1] <= 0:
        return None
    # The last sum is the whole by definition, whatever rounding did to it.
    return min(int(np.searchsorted(squares, share * squares[-1])) + 1, squares.size)


def hill(values: Values, k: int = HILL_K) -> float | None:
    """Tail exponent ``[1/(k-1) sum_{i<k} ln(sigma_i / sigma_k)]^-1``.

    None when there are fewer than ``k`` directions, the k-th is next to nothing, or all ``k`` are equal.
    """
    if k < 2 or values.size < k or values[k - 1] <= 1e-12 * values[0]:
        return None
    mean = float(np.log(values[: k - 1] / values[k - 1]).sum()) / (k - 1)
    return 1 / mean if mean > 0 and math.isfinite(1 / mean) else None


def figures(values: Values, energy: float, size: int) -> dict[str, float | None]:
    """Every figure of this module by name.

    Args:
        values: the largest singular values of the update, or all.
        energy: ``||dW||_F^2``.
        size: the smaller side of the matrix. Figures that need all singular values are None where some are missing.
    """
    whole = values if values.size == size else np.empty(0)
    percents = {f"energy_top_{p}pct": top_energy(values, energy, share_of_ranks(size, p)) for p in TOP_PERCENT}
    return {
        "stable_rank": stable_rank(values, energy),
        **{f"energy_top_{k}": top_energy(values, energy, k) for k in TOP},
        **percents,
        "effective_rank": effective_rank(whole),
        **{f"numerical_rank_{tolerance:.0e}": numerical_rank(whole, tolerance) for tolerance in TOLERANCES},
        "rank_99": rank_for_energy(whole),
        "hill": hill(values),
    }
