"""Masked values of a few words moved together, and apart again, on the CPU.

Tensors come as bits, uint16 of bf16 or uint32 of fp32, so that what is frozen is never taken for a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.jit.vector import AVAILABLE
from maskreg.train.optim.vector_tiles import APART, QUIET, TOGETHER, pack_octets, spread_octets

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]

SPARE = 8
"""Entries that vectors touch after the last."""

_SPARSE = 24
"""Coordinates to a masked one from which on it is faster to go from bit to bit; measured."""

_FULL, _HALF, _LOW = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)
_MAGNITUDE, _INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


@kernel
def _widened(code: Any) -> np.uint32:
    return np.uint32(np.uint32(code) << _FULL)


@kernel
def widen(values: Codes, into: Floats) -> None:
    """Values as fp32."""
    bits = into.view(np.uint32)
    for i in range(values.size):
        bits[i] = _widened(values[i]) if values.itemsize == 2 else np.uint32(values[i])


@kernel
def _lowest(word: np.uint64) -> np.uint64:
    """Number of the lowest bit that is set."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    below -= (below >> np.uint64(1)) & np.uint64(0x5555555555555555)
    below = (below & np.uint64(0x3333333333333333)) + ((below >> np.uint64(2)) & np.uint64(0x3333333333333333))
    below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.uint64((below * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def pack_each(values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats) -> int:
    """Move masked values of words ``[begin, end)`` together, as fp32, bit by bit; returns how many there were."""
    bits = packed.view(np.uint32)
    place = 0
    for w in range(begin, end):
        word = words[w]
        while word:
            code = values[np.uint64(w) * np.uint64(64) + _lowest(word)]
            bits[place] = _widened(code) if values.itemsize == 2 else np.uint32(code)
            place += 1
            word &= word - np.uint64(1)
    return place


@kernel
def _rounded(wide: np.uint32) -> np.uint32:
    """The nearest bf16, or of two the even one."""
    if wide & _MAGNITUDE > _INFINITE:
        return np.uint32(QUIET)
    return np.uint32((wide + _HALF + ((wide >> _FULL) & _LOW)) >> _FULL)


@kernel
def spread_each(values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats) -> int:
    """Move fp32 values to the masked coordinates of words ``[begin, end)``; returns how many there were."""
    bits = packed.view(np.uint32)
    place = 0
    for w in range(begin, end):
        word = words[w]
        while word:
            wide = bits[place]
            values[np.uint64(w) * np.uint64(64) + _lowest(word)] = _rounded(wide) if values.itemsize == 2 else wide
            place += 1
            word &= word - np.uint64(1)
    return place


@kernel
def _pack_vectors(values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats) -> int:
    whole = min(end, values.size // 64)
    place = pack_octets(values, words.view(np.uint8), TOGETHER, packed, 8 * begin, 8 * whole)
    return int(place) + pack_each(values, words, whole, end, packed[place:])


@kernel
def _spread_vectors(values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats) -> int:
    whole = min(end, values.size // 64)
    place = spread_octets(values, words.view(np.uint8), APART, packed, 8 * begin, 8 * whole)
    return int(place) + spread_each(values, words, whole, end, packed[place:])


_pack_dense = _pack_vectors if AVAILABLE else pack_each
_spread_dense = _spread_vectors if AVAILABLE else spread_each


@kernel
def pack_words(values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats, count: int) -> None:
    """Move masked values of words ``[begin, end)`` together, as fp32.

    Args:
        values: uint16 or uint32, of the whole tensor.
        words: uint64, of the whole mask.
        begin: first word.
        end: one past the last.
        packed: fp32, at least ``count`` and :data:`SPARE` long.
        count: masked coordinates of these words.
    """
    if count * _SPARSE < 64 * (end - begin):
        pack_each(values, words, begin, end, packed)
    else:
        _pack_dense(values, words, begin, end, packed)


@kernel
def spread_words(
    values: Codes, words: npt.NDArray[np.uint64], begin: int, end: int, packed: Floats, count: int
) -> None:
    """Move fp32 values to the masked coordinates of words ``[begin, end)``, rounded for bf16.

    Args:
        values: uint16 or uint32, of the whole tensor.
        words: uint64, of the whole mask.
        begin: first word.
        end: one past the last.
        packed: fp32, at least ``count`` and :data:`SPARE` long.
        count: masked coordinates of these words.
    """
    if count * _SPARSE < 64 * (end - begin):
        spread_each(values, words, begin, end, packed)
    else:
        _spread_dense(values, words, begin, end, packed)
