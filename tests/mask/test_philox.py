"""Words by counter."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.mask.philox import TILE, WORDS, philox, tile_words
from tests.mask import reference

ONES = (1 << 64) - 1
U = np.uint64


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
def test_the_authors_known_answers(key: int, low: int, high: int, expected: str) -> None:
    """``kat_vectors`` of Random123, philox4x32 10."""
    words = np.empty((4, 1), np.uint32)
    philox(U(key), U(low), U(high), words)
    assert " ".join(f"{word:08x}" for word in words[:, 0]) == expected
    counter = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    assert reference.philox(counter, [key & 0xFFFFFFFF, key >> 32]) == words[:, 0].tolist()


def test_counters_follow_each_other_across_32_bits() -> None:
    words = np.empty((4, 5), np.uint32)
    philox(U(7), U(0xFFFFFFFE), U(9), words)
    for j in range(5):
        low = 0xFFFFFFFE + j
        assert words[:, j].tolist() == reference.philox([low & 0xFFFFFFFF, low >> 32, 9, 0], [7, 0])


@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("tile", [0, 3, 1 << 40])
def test_words_of_a_tile(second: int, tile: int) -> None:
    seed, tensor = 0xFEDCBA9876543210, 0x8000000000000001
    words = np.empty((4, TILE // 4), np.uint32)
    tile_words(U(seed), U(tensor), second, tile, words)
    flat = words.reshape(-1)
    assert int(flat.max()) < WORDS
    for place in (0, 1, 1023, 1024, 2500, 4095):
        assert flat[place] == reference.word(seed, tensor, tile * TILE + place, second)
