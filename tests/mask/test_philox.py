"""Words by counter."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.mask.philox import TILE, WORDS, philox, words_of
from tests.mask import reference

ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    ("key", "low", "high", "expected"),
    [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (ONES, ONES, ONES, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        # Digits of pi.
        (0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_the_authors_known_answers(kernels: str, key: int, low: int, high: int, expected: str) -> None:
    """``kat_vectors`` of Random123, philox4x32 10."""
    words = np.empty((4, 1), np.uint32)
    philox(key, low, high, words)
    assert " ".join(f"{word:08x}" for word in words[:, 0]) == expected
    counter = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    assert reference.philox(counter, [key & 0xFFFFFFFF, key >> 32]) == words[:, 0].tolist()


@pytest.mark.parametrize("n", [1, 5, 15, 16, 17, 63, 65])
def test_counters_follow_each_other_across_32_bits(kernels: str, n: int) -> None:
    words = np.empty((4, n), np.uint32)
    philox(7, 0xFFFFFFFE, 9, words)
    for j in range(n):
        low = 0xFFFFFFFE + j
        assert words[:, j].tolist() == reference.philox([low & 0xFFFFFFFF, low >> 32, 9, 0], [7, 0])


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("tile", [0, 3, 1 << 40])
def test_words_of_coordinates(kernels: str, second: bool, tile: int) -> None:
    seed, tensor = 0xFEDCBA9876543210, 0x8000000000000001
    words = words_of(seed, tensor, tile * TILE, TILE + 3, second)
    assert words.size == TILE + 3
    assert int(words.max()) < WORDS
    for place in (0, 1, 1023, 1024, 2500, 4095, 4096, 4098):
        assert words[place] == reference.word(seed, tensor, tile * TILE + place, second)
