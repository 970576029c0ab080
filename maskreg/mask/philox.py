"""Random words by counter: the same for a coordinate on every machine, whatever is drawn before, after or beside it.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011),
Philox4x32-10. The key is the seed; the counter holds the coordinate's place and 64 bits that stand for its tensor.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

TILE = 1 << 12
"""Coordinates whose words are made together: word ``w`` of counter ``j`` is that of coordinate ``1024 w + j``."""

WORDS = 1 << 31
"""How many different words a coordinate may have: borders from 0 to this fit 32 bits."""

_COLUMNS = TILE // 4
_LEFT = np.uint64(0xD2511F53)
_RIGHT = np.uint64(0xCD9E8D57)
_STEP_LOW = np.uint32(0x9E3779B9)
_STEP_HIGH = np.uint32(0xBB67AE85)
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint32]
Key = int | np.uint64
"""64 bits; compiled code wants them as numpy has them."""


@kernel
def philox(key: Key, counter: Key, high: Key, words: Words) -> None:
    """Blocks of four words for counters that follow each other.

    Args:
        key: 64 bits.
        counter: lower 64 bits of the first counter; those of the others follow.
        high: upper 64 bits of all.
        words: uint32 ``[4, n]``, filled: column ``j`` with the block of counter ``counter + j``.
    """
    one, two, three, four = words[0], words[1], words[2], words[3]
    for j in range(words.shape[1]):
        low = np.uint64(counter) + np.uint64(j)
        a, b = np.uint32(low), np.uint32(low >> _HALF)
        c, d = np.uint32(high), np.uint32(np.uint64(high) >> _HALF)
        k, m = np.uint32(key), np.uint32(np.uint64(key) >> _HALF)
        for _ in range(10):
            left, right = _LEFT * np.uint64(a), _RIGHT * np.uint64(c)
            a, b = np.uint32(np.uint32(right >> _HALF) ^ b ^ k), np.uint32(right)
            c, d = np.uint32(np.uint32(left >> _HALF) ^ d ^ m), np.uint32(left)
            k, m = np.uint32(k + _STEP_LOW), np.uint32(m + _STEP_HIGH)
        one[j], two[j], three[j], four[j] = a, b, c, d


@kernel
def tile_words(key: Key, tensor: Key, second: int, tile: int, words: Words) -> None:
    """Words of the coordinates ``[4096 tile, 4096 (tile + 1))`` of a tensor.

    Args:
        key: the seed.
        tensor: 64 bits that stand for the tensor.
        second: 1 for other words of the same coordinates, else 0.
        tile: number of the tile.
        words: uint32 ``[4, 1024]``, filled with the upper 31 bits; in C order it is that of the coordinates.
    """
    philox(key, int(np.uint64(tile) * np.uint64(_COLUMNS) + (np.uint64(second) << np.uint64(63))), tensor, words)
    flat = words.reshape(-1)
    for i in range(flat.size):
        flat[i] = flat[i] >> np.uint32(1)
