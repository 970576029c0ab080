"""How several updates become one: the weighted sum, and the mean or sum of those that agree with an elected sign."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.base import Floats, Settings, Sums
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


def dots(sides: Sequence[Floats]) -> Sums:
    """Dot products of all pairs, float64 ``[count * count]``."""
    wide = [side.astype(np.float64) for side in sides]
    products = np.zeros((len(wide), len(wide)))
    for n in range(len(wide)):
        for m in range(n, len(wide)):
            # Not np.dot, whose result depends on the number of threads.
            products[n, m] = products[m, n] = (wide[n] * wide[m]).sum()
    return products.reshape(-1)


def scaled(update: Floats, settings: Settings) -> Floats:
    """An update times the setting ``lambda``."""
    factor = settings["lambda"]
    return update if factor == 1 else update * np.float32(factor)


def is_positive(sums: Floats, tie: float = 1.0) -> npt.NDArray[np.bool_]:
    """Which sums elect the plus; a sum of 0 elects the sign of ``tie``, and minus where that is 0 too."""
    return sums >= 0 if tie > 0 else sums > 0


def elected(updates: Sequence[Floats], weights: Sequence[float], tie: float = 1.0, *, mean: bool = True) -> Floats:
    """The weighted mean or sum of those updates that have the sign of the weighted sum; 0 where there are none.

    Args:
        updates: fp32; 0 where an update has nothing to say.
        weights: of the updates.
        tie: whose sign is elected where the sum is 0.
        mean: divide by the sum of their weights.
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
    return over / under if mean else over


def sizes(updates: Sequence[Floats], thinned: Sequence[Floats]) -> Sums:
    """Sums of absolute values of each update and of what is left of it, float64 ``[2 * count]``."""
    pairs = zip(updates, thinned, strict=True)
    return np.array([np.abs(side).sum(dtype=np.float64) for pair in pairs for side in pair])


def resized(thinned: Sequence[Floats], sums: Sums) -> list[Floats]:
    """What is left of updates, with the sums of absolute values that they had, given :func:`sizes` of whole tensors."""
    factors = [before / after if after else 1.0 for before, after in sums.reshape(-1, 2)]
    return [update * np.float32(factor) for update, factor in zip(thinned, factors, strict=True)]


def fused(updates: Sequence[Floats], weights: Sequence[float], settings: Settings) -> Floats:
    """Bring updates together as the setting ``sign`` says, times the setting ``lambda``."""
    if settings["sign"] == "sum":
        return scaled(total(weighted(updates, weights)), settings)
    return scaled(elected(updates, weights, mean=settings["sign"] == "elect"), settings)
