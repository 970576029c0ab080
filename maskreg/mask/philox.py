"""Random words by counter: the same for a coordinate on every machine, whatever is drawn before, after or beside it.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011),
Philox4x32-10: a cipher of 10 rounds that turns a counter of 128 bits into four words under a key of 64 bits. The key is
the seed. The upper half of the counter stands for the tensor, the lower one for four coordinates.

Which four: not neighbors, but 1,024 apart. Then the four outputs of counters that follow each other fill four rows of
1,024, which read in C order are a tile of 4,096 coordinates, and nothing needs to be transposed:

    coordinate 4,096 + 1,030: tile 1, row 1030 // 1024 = 1, column 6; word 1 of counter 1024 * 1 + 6 = 1,030
    tile 1 = counters 1,024 ... 2,047:  row 0 = their words 0 = coordinates 4,096 ... 5,119,  row 1 = their words 1, ...

Bit 63 of the lower half selects second words, which break ties between first words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

TILE = 1 << 12
"""Coordinates whose words are generated together."""

WORDS = 1 << 31
"""How many words there are. 31 bits, so that a border above all of them still fits 32."""

_COLUMNS = TILE // 4
_LEFT = np.uint64(0xD2511F53)
_RIGHT = np.uint64(0xCD9E8D57)
_WEYL_LOW = np.uint32(0x9E3779B9)
_WEYL_HIGH = np.uint32(0xBB67AE85)
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint32]
Key = int | np.uint64
"""64 bits; kernels need NumPy's type."""


@kernel
def philox(key: Key, counter: Key, high: Key, words: Words) -> None:
    """Four words for each of several consecutive counters.

    Args:
        key: 64 bits.
        counter: lower 64 bits of the first counter.
        high: upper 64 bits of all counters.
        words: uint32 ``[4, n]``, filled: column ``j`` with the four words of counter ``counter + j``.
    """
    row0, row1, row2, row3 = words[0], words[1], words[2], words[3]
    for j in range(words.shape[1]):
        low = np.uint64(counter) + np.uint64(j)
        a, b = np.uint32(low), np.uint32(low >> _HALF)
        c, d = np.uint32(high), np.uint32(np.uint64(high) >> _HALF)
        k, m = np.uint32(key), np.uint32(np.uint64(key) >> _HALF)
        for _ in range(10):
            left, right = _LEFT * np.uint64(a), _RIGHT * np.uint64(c)
            a, b = np.uint32(np.uint32(right >> _HALF) ^ b ^ k), np.uint32(right)
            c, d = np.uint32(np.uint32(left >> _HALF) ^ d ^ m), np.uint32(left)
            k, m = np.uint32(k + _WEYL_LOW), np.uint32(m + _WEYL_HIGH)
        row0[j], row1[j], row2[j], row3[j] = a, b, c, d


@kernel
def tile_words(key: Key, tensor: Key, second: int, tile: int, words: Words) -> None:
    """Words of the coordinates ``[4096 tile, 4096 (tile + 1))`` of a tensor.

    Args:
        key: the seed.
        tensor: 64 bits that stand for the tensor.
        second: 1 for the coordinates' second words, else 0.
        tile: number of the tile.
        words: uint32 ``[4, 1024]``, filled with words of 31 bits, in the order of the coordinates.
    """
    philox(key, int(np.uint64(tile) * np.uint64(_COLUMNS) + (np.uint64(second) << np.uint64(63))), tensor, words)
    flat = words.reshape(-1)
    for i in range(flat.size):
        flat[i] = flat[i] >> np.uint32(1)
