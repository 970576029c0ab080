"""How an update's energy is distributed over its singular values: figures that need no singular vectors.

Source: "Dense Supervision, Sparse Updates" (arXiv 2606.13657), whose code computes most of these. Every function takes
singular values as a float64 array ``[r]`` in descending order. Example: values 4, 2, 2 have energy 16 + 4 + 4 = 24,
stable rank 24 / 16 = 1.5, 2/3 of the energy in the top direction, and with p = 1/2, 1/4, 1/4 the effective rank
exp(1.04) = 2.83.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

# Detecting a low-rank adapter that was merged into the weights before they were rounded.
#
# Rounding makes an update full-rank, so its rank does not reveal an adapter. A gap in the spectrum does: the adapter's
# directions stand out, and the next singular value already belongs to rounding noise. Full training has no such gap,
# even where a few directions hold most of its energy. Measured on small weights: merged adapters of rank 8 and 16 give
# gaps of 1.8 to 17 at densities from .47 on, runs of distillation and reinforcement learning at most 1.5. Below a
# density of about .3 rounding hides the gap, so the absence of a suspicion proves nothing.

RANKS = (4, 64)
"""Ranks of adapters that are looked for, inclusive; below them gaps are common."""

MIN_GAP = 1.6
"""Smallest ``sigma_r / sigma_{r+1}`` that counts as a gap."""

MIN_ENERGY = 0.5
"""Smallest share of the energy in the directions above the gap."""

MIN_LIFT = 2.0
"""Smallest ratio of that share to the share of as many directions under the rounding null."""

FIGURES = ("step", "step_rank", "step_energy")
"""Keys under which analyses store the gap, its rank and its energy; fixed by the format."""


def gap_figures(values: npt.NDArray[np.float64], energy: float) -> dict[str, float | None]:
    """The largest gap ``sigma_r / sigma_{r+1}`` for r in :data:`RANKS`, its r, and the energy share of r directions.

    Example: 16 singular values of 4, then ones: the gap is 4 at r = 16.
    """
    first, last = RANKS
    below = values[first : last + 1]
    if not below.size or below[-1] <= 1e-9 * values[0]:
        # A spectrum that ends is no bf16 update, or one of a few coordinates.
        return dict.fromkeys(FIGURES)
    gaps = values[first - 1 : first - 1 + below.size] / below
    rank = first + int(gaps.argmax())
    share = min(1.0, float(np.square(values[:rank]).sum()) / energy)
    return dict(zip(FIGURES, (float(gaps.max()), rank, share), strict=True))


def is_merged(figures: Mapping[str, float | None], null: Mapping[str, float | None]) -> bool:
    """Whether a merged adapter is suspected, from the figures of an update and of its rounding null.

    True when the largest gap is at least 1.6 and the directions above it hold at least half of the energy, and at
    least twice what as many directions (or the next power of two) hold under the null.
    """
    gap, rank, share = (figures.get(name) for name in FIGURES)
    if gap is None or rank is None or share is None:
        return False
    by_chance = null.get(f"energy_top_{1 << (int(rank) - 1).bit_length()}")
    return gap >= MIN_GAP and share >= max(MIN_ENERGY, MIN_LIFT * (by_chance or 0.0))


Values = npt.NDArray[np.float64]

TOP = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of directions whose share of the energy is given."""

TOP_PERCENT = (1, 5, 10)
"""Percentages of all directions whose share of the energy is given."""

TOLERANCES = (1e-6, 1e-5, 1e-4)
"""Shares of the largest singular value that a direction must exceed to count for the numerical rank."""

HILL_K = 10
"""Singular values in the Hill estimate."""


def stable_rank(values: Values, energy: float) -> float | None:
    """``||dW||_F^2 / sigma_1^2``; None for a zero update."""
    return energy / float(values[0]) ** 2 if values.size and values[0] > 0 else None


def top_energy(values: Values, energy: float, k: int) -> float | None:
    """Share of the energy in the ``k`` largest directions; None when fewer are known, or for a zero update."""
    if k > values.size or energy <= 0:
        return None
    return min(1.0, float(np.square(values[:k]).sum()) / energy)


def effective_rank(values: Values) -> float | None:
    """``exp(-sum p ln p)`` with ``p = sigma / sum sigma`` (of sigma, not of its square); None for a zero update."""
    total = values.sum()
    if total <= 0:
        return None
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def numerical_rank(values: Values, tolerance: float) -> float | None:
    """Share of directions with ``sigma > tolerance * sigma_1``, 0 to 1; None for a zero update."""
    if not values.size or values[0] <= 0:
        return None
    return float((values > tolerance * values[0]).mean())


def rank_for_energy(values: Values, share: float = 0.99) -> int | None:
    """Smallest number of directions that hold at least ``share`` of the energy; None for a zero update."""
    squares = np.cumsum(np.square(values))
    if not squares.size or squares[-1] <= 0:
        return None
    # Rounding can leave the last sum below share * total; it is the whole by definition.
    return min(int(np.searchsorted(squares, share * squares[-1])) + 1, squares.size)


def hill(values: Values, k: int = HILL_K) -> float | None:
    """Tail exponent ``[1/(k-1) sum_{i<k} ln(sigma_i / sigma_k)]^-1``.

    None with fewer than ``k`` directions, when the k-th is negligible, or when all ``k`` are equal.
    """
    if k < 2 or values.size < k or values[k - 1] <= 1e-12 * values[0]:
        return None
    mean = float(np.log(values[: k - 1] / values[k - 1]).sum()) / (k - 1)
    return 1 / mean if mean > 0 and math.isfinite(1 / mean) else None


def figures(values: Values, energy: float, size: int) -> dict[str, float | None]:
    """Every figure of this module by name, of a matrix whose smaller side is ``size``.

    Figures that need all singular values are None when some are missing.
    """
    whole = values if values.size == size else np.empty(0)
    # Of so many percent of the directions: rounded up, at least one.
    percents = {f"energy_top_{p}pct": top_energy(values, energy, max(1, -(-size * p // 100))) for p in TOP_PERCENT}
    return {
        "spectral_norm": float(values[0]) if values.size and values[0] > 0 else None,
        "stable_rank": stable_rank(values, energy),
        **{f"energy_top_{k}": top_energy(values, energy, k) for k in TOP},
        **percents,
        "effective_rank": effective_rank(whole),
        **{f"numerical_rank_{tolerance:.0e}": numerical_rank(whole, tolerance) for tolerance in TOLERANCES},
        "rank_99": rank_for_energy(whole),
        "hill": hill(values),
    }
