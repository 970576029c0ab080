"""Slow and plain versions of what draws are made of, written from FORMAT.md section 7 alone."""

from __future__ import annotations

from collections.abc import Sequence

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
    seed: int, tensors: Sequence[tuple[int, Sequence[int]]], weights: Sequence[float], wanted: int
) -> set[tuple[int, int]]:
    """(tensor, coordinate) of the ``wanted`` with the smallest words by weight.

    Args:
        seed: 64 bits.
        tensors: of each, 64 bits that stand for it, and the class of each coordinate.
        weights: by class.
        wanted: how many.
    """
    keys = [
        (word(seed, tensor, i, 0) / weights[kind], word(seed, tensor, i, 1), tensor, i)
        for tensor, classes in tensors
        for i, kind in enumerate(classes)
        if weights[kind] > 0
    ]
    return {(tensor, i) for _, _, tensor, i in sorted(keys)[:wanted]}
