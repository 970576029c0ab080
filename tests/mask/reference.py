"""Slow and plain versions of what draws are made of, written from FORMAT.md section 7 alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MASK32 = (1 << 32) - 1


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """One block of Philox4x32-10 from four and two words, lowest first."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k, right & MASK32, (left >> 32) ^ d ^ m, left & MASK32
        k, m = (k + 0x9E3779B9) & MASK32, (m + 0xBB67AE85) & MASK32
    return [a, b, c, d]


def word(seed: int, tensor: int, i: int, second: int) -> int:
    """First or second word of a coordinate."""
    tile, place = divmod(i, 4096)
    low = 1024 * tile + place % 1024 + (second << 63)
    counter = [low & MASK32, low >> 32, tensor & MASK32, tensor >> 32]
    return philox(counter, [seed & MASK32, seed >> 32])[place // 1024] >> 1


def drawn(
    seed: int, tensors: Sequence[tuple[int, Sequence[int]]], chances: Sequence[float], wanted: int
) -> set[tuple[int, int]]:
    """(tensor, coordinate) of the ``wanted`` with the smallest odds, over the odds of their classes.

    Args:
        seed: 64 bits.
        tensors: of each, 64 bits that stand for it, and the class of each coordinate.
        chances: by class.
        wanted: how many.
    """
    keys = [
        (float(r) / float(2**63 - r) / _odds(chances[kind]), second, tensor, i)
        for tensor, classes in tensors
        for i, kind in enumerate(classes)
        if chances[kind] > 0
        for second in [word(seed, tensor, i, 1)]
        for r in [2**32 * word(seed, tensor, i, 0) + 2 * second + 1]
    ]
    return {(tensor, i) for _, _, tensor, i in sorted(keys)[:wanted]}


def _odds(chance: float) -> float:
    chance = min(chance, 1 - 2.0**-33)
    return chance / (1 - chance)


def chances_by_rounding(members: npt.NDArray[np.int64], nnz: int) -> Floats:
    """Chance of every class to be in a mask of one tensor that rounding alone made, the scale by bisection.

    Args:
        members: by class.
        nnz: coordinates of the mask.
    """
    classes = np.flatnonzero(members)
    up = np.ldexp(1.0, np.maximum(classes >> 1, 1) - 135)
    down = np.where((classes & 1 == 1) & (classes > 3), up / 2, up)
    finite = classes < 510
    low, high = -140.0, 130.0
    while True:
        middle = (low + high) / 2
        sides = np.stack([up, down]) / 2.0**middle / math.sqrt(2)
        tails = np.array([[math.erfc(side) for side in row] for row in sides.tolist()]).sum(0) / 2 * finite
        if middle in (low, high):
            break
        low, high = (middle, high) if members[classes] @ tails < nnz else (low, middle)
    chances = np.zeros(members.size)
    chances[classes] = tails
    return chances
