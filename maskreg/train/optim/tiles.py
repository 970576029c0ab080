"""Packing the masked values of a few words into a contiguous vector, and spreading them again, on the CPU.

Tensors come as bits, uint16 of bf16 or uint32 of fp32. Frozen values are only ever copied as integers, so that even the
bits of a NaN survive. There are two ways, and the density of a tile decides between them:

- bit by bit: ``while word: take the lowest set bit; clear it`` costs one round per masked coordinate;
- eight at a time (AVX2, :mod:`maskreg.train.optim.vector_tiles`): one round per octet, whatever its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.jit.vector import AVAILABLE
from maskreg.train.optim.vector_tiles import APART, QUIET_NAN, TOGETHER, pack_octets, spread_octets

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]

SPARE = 8
"""Entries past the last that vector instructions may touch."""

_SPARSE = 24
"""Coordinates per masked one from which bit by bit is faster; measured."""

_FULL, _HALF, _LOW, _UPPER = np.uint32(16), np.uint32(0x7FFF), np.uint32(1), np.uint32(0xFFFF0000)
_MAGNITUDE, _INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)


@kernel
def _widened(code: Any) -> np.uint32:
    """Bits of fp32 from those of bf16, which are its upper half."""
    return np.uint32(np.uint32(code) << _FULL)


@kernel
def widen(values: Codes, out: Floats) -> None:
    """Values as fp32."""
    bits = out.view(np.uint32)
    for i in range(values.size):
        bits[i] = _widened(values[i]) if values.itemsize == 2 else np.uint32(values[i])


@kernel
def _lowest(word: np.uint64) -> np.uint64:
    """Index of the lowest set bit: the number of ones below it.

    ``(word & -word) - 1`` has exactly the bits below the lowest one: ``0b10100 -> 0b00100 -> 0b00011``, of which the
    rest counts the ones, in pairs, nibbles and bytes (Warren, Hacker's Delight, 5-1). Numba has no intrinsic for it.
    """
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    below -= (below >> np.uint64(1)) & np.uint64(0x5555555555555555)
    below = (below & np.uint64(0x3333333333333333)) + ((below >> np.uint64(2)) & np.uint64(0x3333333333333333))
    below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.uint64((below * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def pack_each(values: Codes, words: Words, begin: int, end: int, packed: Floats) -> int:
    """Pack masked values of words ``[begin, end)`` as fp32, bit by bit; returns how many."""
    bits = packed.view(np.uint32)
    entry = 0
    for w in range(begin, end):
        word = words[w]
        while word:
            code = values[np.uint64(w) * np.uint64(64) + _lowest(word)]
            bits[entry] = _widened(code) if values.itemsize == 2 else np.uint32(code)
            entry += 1
            word &= word - np.uint64(1)
    return entry


@kernel
def _rounded(wide: np.uint32) -> np.uint32:
    """Bits of the nearest bf16, to even on ties.

    Adding 0x7FFF carries into the upper half if the lower half exceeds a tie, 0x8000; adding the upper half's lowest
    bit too carries on the tie itself if that bit is odd. ``0x3F80_8000 -> 0x3F80``, but ``0x3F81_8000 -> 0x3F82``.
    """
    if wide & _MAGNITUDE > _INFINITE:
        return np.uint32(QUIET_NAN)
    return np.uint32((wide + _HALF + ((wide >> _FULL) & _LOW)) >> _FULL)


@kernel
def spread_each(values: Codes, words: Words, begin: int, end: int, packed: Floats) -> int:
    """Spread fp32 values to the masked coordinates of words ``[begin, end)``, bit by bit; returns how many."""
    bits = packed.view(np.uint32)
    entry = 0
    for w in range(begin, end):
        word = words[w]
        while word:
            wide = bits[entry]
            values[np.uint64(w) * np.uint64(64) + _lowest(word)] = _rounded(wide) if values.itemsize == 2 else wide
            entry += 1
            word &= word - np.uint64(1)
    return entry


@kernel
def take_masters(weights: Codes, values: Floats, masters: Floats) -> None:
    """Replace packed weights by their fp32 masters, except where a weight is not what its master rounds to.

    A step leaves every weight as the rounding of its master. One that is anything else was written since, by
    ``load_state_dict`` or an average of weights, and counts: with the master ``0x3F80_4000``, the weight ``0x3F80``
    becomes that, but ``0x3F90`` stays ``0x3F90_0000``. Weights of fp32 have no digits to lose, and all stay.

    Args:
        weights: any of the tensor's codes, for their width.
        values: packed fp32 of the weights.
        masters: of the same entries.
    """
    if weights.itemsize == 2:
        new, kept = values.view(np.uint32), masters.view(np.uint32)
        for i in range(new.size):
            # As _rounded does it, but without a branch, so that it vectorizes; no weight is the rounding of a NaN.
            wide = kept[i]
            near = np.uint32(np.uint32(wide + np.uint32(_HALF + np.uint32(np.uint32(wide >> _FULL) & _LOW))) & _UPPER)
            is_its_rounding = (near == new[i]) & (np.uint32(wide & _MAGNITUDE) <= _INFINITE)
            new[i] = wide if is_its_rounding else new[i]


@kernel
def _pack_vectors(values: Codes, words: Words, begin: int, end: int, packed: Floats) -> int:
    complete = min(end, values.size // 64)  # the last word may have fewer than 64 coordinates
    entry = pack_octets(values, words.view(np.uint8), TOGETHER, packed, 8 * begin, 8 * complete)
    return int(entry) + pack_each(values, words, complete, end, packed[entry:])


@kernel
def _spread_vectors(values: Codes, words: Words, begin: int, end: int, packed: Floats) -> int:
    complete = min(end, values.size // 64)
    entry = spread_octets(values, words.view(np.uint8), APART, packed, 8 * begin, 8 * complete)
    return int(entry) + spread_each(values, words, complete, end, packed[entry:])


_pack_dense = _pack_vectors if AVAILABLE else pack_each
_spread_dense = _spread_vectors if AVAILABLE else spread_each


@kernel
def pack_words(values: Codes, words: Words, begin: int, end: int, packed: Floats, count: int) -> None:
    """Pack masked values of words ``[begin, end)`` as fp32.

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
def spread_words(values: Codes, words: Words, begin: int, end: int, packed: Floats, count: int) -> None:
    """Spread fp32 values to the masked coordinates of words ``[begin, end)``, rounded for bf16.

    The arguments are those of :func:`pack_words`.
    """
    if count * _SPARSE < 64 * (end - begin):
        spread_each(values, words, begin, end, packed)
    else:
        _spread_dense(values, words, begin, end, packed)
