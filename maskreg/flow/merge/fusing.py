"""How several updates become one: the weighted sum, and the mean of those that agree with an elected sign."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.base import Floats, Settings
from maskreg.flow.merge.numbers import kept


def weighted(updates: Sequence[Floats], weights: Sequence[float]) -> list[Floats]:
    """Every update times its weight, in fp32."""
    return [
        update if weight == 1 else update * np.float32(weight) for update, weight in zip(updates, weights, strict=True)
    ]


def total(updates: Sequence[Floats]) -> Floats:
    """The sum, in fp32 and in order."""
    result = updates[0].copy()
    for update in updates[1:]:
        result += update
    return result


def scaled(update: Floats, settings: Settings) -> Floats:
    """An update times the setting ``lambda``."""
    factor = settings["lambda"]
    return update if factor == 1 else update * np.float32(factor)


def is_positive(sums: Floats, tie: float = 1.0) -> npt.NDArray[np.bool_]:
    """Which sums elect the plus; a sum of 0 elects the sign of ``tie``, and minus where that is 0 too."""
    return sums >= 0 if tie > 0 else sums > 0


def elected_mean(updates: Sequence[Floats], weights: Sequence[float], tie: float = 1.0) -> Floats:
    """The weighted mean of those updates that have the sign of the weighted sum; 0 where there are none.

    Args:
        updates: fp32; 0 where an update has nothing to say.
        weights: of the updates.
        tie: whose sign is elected where the sum is 0.
    """
    parts = weighted(updates, weights)
    positive = is_positive(total(parts), tie)
    over, under = np.zeros_like(parts[0]), np.zeros_like(parts[0])
    for part, weight in zip(parts, weights, strict=True):
        # Has the elected sign, and is not 0.
        agrees = ((part > 0) == positive) & (part != 0)
        over += kept(part, agrees)
        under += agrees * np.float32(weight)
    under[under == 0] = 1
    return over / under


def fused(updates: Sequence[Floats], weights: Sequence[float], settings: Settings) -> Floats:
    """Bring updates together as the setting ``sign`` says, times the setting ``lambda``."""
    if settings["sign"] == "sum":
        return scaled(total(weighted(updates, weights)), settings)
    return scaled(elected_mean(updates, weights), settings)
