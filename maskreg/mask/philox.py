"""Random words by counter: the same for a coordinate on every machine, and in any order of draws.

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

from maskreg.native import library

TILE = 1 << 12
"""Coordinates whose words are generated together."""

WORDS = 1 << 31
"""How many words there are. 31 bits, so that a border above all of them still fits 32."""

_COLUMNS = TILE // 4
Words = npt.NDArray[np.uint32]


def philox(key: int, counter: int, high: int, words: Words) -> None:
    """Four words for each of several consecutive counters, filled into uint32 ``[4, n]``, column after column.

    Args:
        key: 64 bits.
        counter: lower 64 bits of the first counter.
        high: upper 64 bits of all counters.
        words: filled.
    """
    compiled = library()
    compiled.lib.maskreg_philox(key, counter, high, words.shape[1], compiled.write(words))


def words_of(key: int, tensor: int, first: int, numel: int, second: bool = False) -> Words:
    """Words of the coordinates ``[first, first + numel)`` of a tensor, uint32 ``[numel]``, 31 bits each.

    Key and tensor are 64 bits each; ``first`` is a multiple of 4,096; ``second`` gives the coordinates' second words.
    """
    tiles = -(-numel // TILE)
    words = np.empty((4, tiles * _COLUMNS), np.uint32)
    philox(key, first // 4 + (second << 63), tensor, words)
    in_order = words.reshape(4, tiles, _COLUMNS).transpose(1, 0, 2).reshape(-1)
    return in_order[:numel] >> np.uint32(1)
