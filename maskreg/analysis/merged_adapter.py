"""Detecting a low-rank adapter that was merged into the weights before they were rounded.

Rounding makes an update full-rank, so its rank does not reveal an adapter. A gap in the spectrum does: the adapter's
directions stand out, and the next singular value already belongs to rounding noise. Full training has no such gap, even
where a few directions hold most of its energy. Measured on small weights: merged adapters of rank 8 and 16 give gaps of
1.8 to 17 at densities from .47 on, runs of distillation and reinforcement learning at most 1.5. Below a density of
about .3 rounding hides the gap, so the absence of a suspicion proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

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

    Args:
        values: singular values in descending order, float64.
        energy: ``||dW||_F^2``.
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
