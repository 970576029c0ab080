"""What methods are made of: choices without branches, weighted sums, elected signs and dot products.

Which coordinates move is close to random, so a branch per coordinate would be mispredicted every other time. Choices
are made with bits instead, which takes a twentieth of the time of NumPy's ``where``::

    values  3F80 3F81    where  True False    mask  FFFF 0000    values & mask  3F80 0000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.methods.base import Floats, Settings, Sums, Tile

Bits = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def kept(values: Floats, where: Bools) -> Floats:
    """fp32 numbers where it is true, and 0 elsewhere."""
    mask = np.negative(where.view(np.int8), dtype=np.int32)
    return np.bitwise_and(values.view(np.int32), mask, out=mask).view(np.float32)


def replace(bits: Bits, new: Bits, where: Bools) -> None:
    """Overwrite unsigned integers with others of the same width, where it is true."""
    mask = np.negative(where.view(np.int8), dtype=np.dtype(f"i{bits.itemsize}")).view(bits.dtype)
    mask &= bits ^ new
    bits ^= mask


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


def mean_of_moved(updates: Sequence[Floats]) -> tuple[Floats, npt.NDArray[np.int32]]:
    """The mean over the updates that move a coordinate, and how many do."""
    count: Any = np.sum([update != 0 for update in updates], axis=0, dtype=np.int32)
    return total(updates) / np.maximum(count, 1).astype(np.float32), count


def is_positive(sums: Floats, tie: float = 1.0) -> Bools:
    """Which sums elect the plus; a sum of 0 elects the sign of ``tie``, and minus where that is 0 too."""
    return sums >= 0 if tie > 0 else sums > 0


def elected(updates: Sequence[Floats], weights: Sequence[float], tie: float = 1.0, *, mean: bool = True) -> Floats:
    """The weighted mean or sum of the updates that have the sign of the weighted sum; 0 where there are none.

    Where that sum is 0, the sign of ``tie`` is elected; a mean is divided by the sum of the agreeing weights.
    """
    parts = weighted(updates, weights)
    return agreeing(parts, parts, is_positive(total(parts), tie), np.array(weights, np.float32) if mean else None)


def agreeing(
    updates: Sequence[Floats], parts: Sequence[Floats], positive: Bools, weights: npt.NDArray[np.float32] | None
) -> Floats:
    """The sum of the parts whose updates have the elected sign, divided by the sum of their weights if given."""
    over, under = np.zeros_like(parts[0]), np.zeros_like(parts[0])
    for index, (update, part) in enumerate(zip(updates, parts, strict=True)):
        agrees = ((update > 0) == positive) & (update != 0)
        over += kept(part, agrees)
        if weights is not None:
            under += agrees * weights[index]
    # 0 / 1 where no update agrees.
    under[under == 0] = 1
    return over / under


def fused(updates: Sequence[Floats], weights: Sequence[float], settings: Settings) -> Floats:
    """Combine updates as the setting ``sign`` says, times the setting ``lambda``."""
    if settings["sign"] == "sum":
        return scaled(total(weighted(updates, weights)), settings)
    return scaled(elected(updates, weights, mean=settings["sign"] == "elect"), settings)


def update_dots(tile: Tile) -> Sums:
    """A measure: dot products of all pairs of updates, float64 ``[count * count]``."""
    wide = [update.astype(np.float64) for update in tile.updates]
    products = np.zeros((len(wide), len(wide)))
    for n in range(len(wide)):
        for m in range(n, len(wide)):
            # Not np.dot, whose result depends on the number of threads.
            products[n, m] = products[m, n] = (wide[n] * wide[m]).sum()
    return products.reshape(-1)
