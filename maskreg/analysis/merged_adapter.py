"""Whether an update looks like a low-rank adapter that was merged into the weights before they were rounded.

Rounding fills the rank of an update, so its rank says nothing of an adapter. What stays is a step in the spectrum: the
adapter's directions stand out, and the next singular value already belongs to rounding. Full training has no such step
although a few directions may hold most of its energy. Measured on small weights: merged adapters of rank 8 and 16 give
a step of 1.8 to 17 at densities from .47 on, and runs of distillation and reinforcement learning at most 1.5. Below a
density of about .3 rounding hides the step, so no suspicion is no proof.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

RANKS = (4, 64)
"""Ranks of adapters that are looked for, both ends included; below them, steps are common."""

LEAST_STEP = 1.6
"""``sigma_r / sigma_{r+1}`` from which on a step is one."""

LEAST_SHARE = 0.5
"""Energy that the directions above the step have to hold."""

LEAST_LIFT = 2.0
"""How much of the energy they have to hold, relative to as many directions under the rounding null."""

FIGURES = ("step", "step_rank", "step_energy")


def gap_figures(values: npt.NDArray[np.float64], energy: float) -> dict[str, float | None]:
    """The largest step ``sigma_r / sigma_{r+1}`` among :data:`RANKS`, its r, and the energy of the r directions.

    Args:
        values: singular values in falling order, float64.
        energy: ``||dW||_F^2``.
    """
    first, last = RANKS
    below = values[first : last + 1]
    if not below.size or below[-1] <= 1e-9 * values[0]:
        # A spectrum that ends is no bf16 update, or one of a few coordinates.
        return dict.fromkeys(FIGURES)
    steps = values[first - 1 : first - 1 + below.size] / below
    rank = first + int(steps.argmax())
    return {
        "step": float(steps.max()),
        "step_rank": rank,
        "step_energy": min(1.0, float(np.square(values[:rank]).sum()) / energy),
    }


def is_merged(figures: Mapping[str, float | None], null: Mapping[str, float | None]) -> bool:
    """Whether a merged adapter is suspected, from the figures of an update and of its rounding null.

    True when the largest step is at least 1.6 and the directions above it hold at least half of the energy, and at
    least twice of what the same number of directions (or the next power of two) holds under the null.
    """
    step, rank, share = (figures.get(name) for name in FIGURES)
    if step is None or rank is None or share is None:
        return False
    by_chance = null.get(f"energy_top_{1 << (int(rank) - 1).bit_length()}")
    return step >= LEAST_STEP and share >= max(LEAST_SHARE, LEAST_LIFT * (by_chance or 0.0))
