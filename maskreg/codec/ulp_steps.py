"""ULP steps: how many representable numbers lie between a code and its new value, as one token of 64.

A ULP step is the difference of the magnitudes (the low 15 bits of the codes), so neighboring bf16 numbers are one step
apart, also across a power of two. Most are short, so short ones have a token of their own; long ones share a token per
size class and add extra bits, as lengths do in Deflate. With ``v = token - 32``:

    v                 ULP step                             extra bits
    -16 .. 16         v                                    none
    17 .. 27          2^d + x + 1,     d = v - 13          d bits: x
    -27 .. -17        -(2^d + x + 1),  d = -v - 13         d bits: x
    31 (token 63)     literal: the new code itself         16 bits

So d counts from 4 (17 to 32 steps) to 14 (16,385 to 32,768 steps), and every magnitude can be reached. A change of sign
is always a literal: steps are taken between magnitudes, and sign changes are too rare to deserve tokens.

    source 0x3F80 (1.0), target 0x3F83       step +3      token 35
    source 0xBF80 (-1.0), target 0xBF7F      step -1      token 31: negative is toward zero, whatever the sign
    source 0x3F80, target 0x3F94             step +20     d = 4 (17 to 32 steps), x = 20 - 16 - 1 = 3:
                                                          token 32 + 13 + 4 = 49, extra bits 3 in 4 bits
    source 0x3F80, target 0xBF80             sign change  token 63, extra bits 0xBF80

Where a prediction says which way a coordinate moved (see :mod:`maskreg.codec.contexts`), the sign of v is flipped so
that a positive v agrees with the prediction: the tokens then have one likely side instead of two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Bits, Ints
from maskreg.codec.contexts import TILE
from maskreg.jit import kernel

MIDDLE = 32
"""Token of a ULP step of 0."""

NEAREST = 16
"""The longest ULP step without extra bits."""

FARTHEST = 27
"""``|v|`` of the longest size class."""

LITERAL = 63
"""Token of a code that is stored whole."""

FEWER_BITS = 13
"""A long ULP step has ``|v|`` minus this many extra bits."""

LITERAL_BITS = 16
"""Extra bits of a literal."""

_COUNTERS = 4
"""Counters per key. Neighbors often have the same key, and an increment waits for the store of the one before."""

Tokens = npt.NDArray[np.uint8]
Coordinates = npt.NDArray[np.int64]


class Moves(NamedTuple):
    """What happened to the coordinates of a span, and where their values go.

    Attributes:
        source: uint16 ``[n]``.
        tokens: uint8 ``[n]``, as decoded.
        flips: int8 ``[n]``, -1 where the sign of the ULP step is flipped, else 0.
        values: uint16 ``[n]``, to be filled.
    """

    source: Codes
    tokens: Tokens
    flips: Ints
    values: Codes


def _extra_counts() -> Tokens:
    """How many extra bits a token has, uint8 ``[64]``; meaningless for tokens without any."""
    counts: Tokens = np.maximum(np.abs(np.arange(64) - MIDDLE) - FEWER_BITS, 0).astype(np.uint8)
    counts[LITERAL] = LITERAL_BITS
    return counts


_EXTRA_COUNTS = _extra_counts()


@kernel
def find_far(tokens: Tokens, marks: Tokens, far: Coordinates) -> int:
    """List the coordinates whose tokens have extra bits, in order; returns how many there are.

    Testing every token with a branch costs more than all the rest, because few have extra bits and which is
    unpredictable. So a first loop, which compiles to vectors, marks them with a byte each; a second looks at 8 marks at
    once, skips zeros, and takes out one mark after another. In the lowest set byte, times 0x0001020304050607, byte k of
    the constant moves to the top: it is the number of that byte.

        marks 0 0 1 0 0 1 0 0    word 0x0000_0100_0001_0000
        lowest 0x1_0000 = 2^16   2^16 * 0x0001020304050607 >> 56 = 2    ->  coordinate 2; then 5

    Args:
        tokens: uint8 ``[n]``.
        marks: uint8, a multiple of 8 and at least ``n`` long; scratch.
        far: int64, at least ``n``; filled.
    """
    n = tokens.size
    eights = -(-n // 8)
    marks[n : 8 * eights] = 0
    for i in range(n):
        # One comparison for both ends: what is below MIDDLE - NEAREST wraps around.
        marks[i] = np.uint8(np.uint8(tokens[i] - np.uint8(MIDDLE - NEAREST)) > np.uint8(2 * NEAREST))
    words = marks.view(np.uint64)
    count = 0
    for eight in range(eights):
        word = words[eight]
        while word:
            lowest = word & (~word + np.uint64(1))
            far[count] = 8 * eight + int((lowest * np.uint64(0x0001020304050607)) >> np.uint64(56))
            count += 1
            word ^= lowest
    return count


@kernel
def tokens_of(source: Codes, target: Codes, tokens: Tokens, counts: npt.NDArray[np.int64]) -> None:
    """Tokens of all coordinates, not flipped, and how many of each there are by exponent of the source.

    Args:
        source: uint16 ``[n]``.
        target: uint16 ``[n]``.
        tokens: uint8 ``[n]``, filled.
        counts: int64 ``[256, 64]``, added to.
    """
    parts, keys = np.zeros((_COUNTERS, counts.size), np.uint32), np.empty(TILE, np.uint16)
    for start in range(0, target.size, TILE):
        stop = min(start + TILE, target.size)
        before, after, tile = source[start:stop], target[start:stop], tokens[start:stop]
        for i in range(tile.size):
            step = np.int16(np.int16(after[i] & np.uint16(0x7FFF)) - np.int16(before[i] & np.uint16(0x7FFF)))
            length = np.int16(abs(step))
            far = np.int16(length - np.int16(1))
            # Size class = 13 + floor(log2(far)), by comparisons: vectors of 16 bits have no count of leading zeros.
            size = np.int16(
                np.int16(NEAREST + 1) + np.int16(far >= 32) + np.int16(far >= 64) + np.int16(far >= 128)
                + np.int16(far >= 256) + np.int16(far >= 512) + np.int16(far >= 1024) + np.int16(far >= 2048)
                + np.int16(far >= 4096) + np.int16(far >= 8192) + np.int16(far >= 16384)
            )  # fmt: skip
            size = length if length <= np.int16(NEAREST) else size
            sign = np.int16(step >> np.int16(15))
            token = np.int16(np.int16(MIDDLE) + np.int16((size ^ sign) - sign))
            sign_changed = np.int16(after[i] ^ before[i]) < np.int16(0)
            tile[i] = np.uint8(LITERAL) if sign_changed else np.uint8(token)
        tile_keys = keys[: tile.size]
        for i in range(tile.size):
            tile_keys[i] = np.uint16((before[i] >> np.uint16(1)) & np.uint16(0xFF << 6)) | np.uint16(tile[i])
        _count(tile_keys, parts)
    _sum_up(parts, counts)


@kernel
def count_keys(keys: npt.NDArray[np.uint16], counts: npt.NDArray[np.int64]) -> None:
    """Count keys.

    Args:
        keys: uint16 ``[n]``, cell << 6 | token.
        counts: int64 ``[cells, 64]``, added to.
    """
    parts = np.zeros((_COUNTERS, counts.size), np.uint32)
    _count(keys, parts)
    _sum_up(parts, counts)


@kernel
def _count(keys: npt.NDArray[np.uint16], parts: npt.NDArray[np.uint32]) -> None:
    whole = keys.size // _COUNTERS * _COUNTERS
    for i in range(0, whole, _COUNTERS):
        for part in range(_COUNTERS):
            parts[part, keys[i + part]] += np.uint32(1)
    for i in range(whole, keys.size):
        parts[0, keys[i]] += np.uint32(1)


@kernel
def _sum_up(parts: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> None:
    for part in range(_COUNTERS):
        for cell in range(counts.shape[0]):
            for token in range(counts.shape[1]):
                counts[cell, token] += parts[part, cell << 6 | token]


@kernel
def put_extra_bits(moves: Moves, far: Coordinates, bits: npt.NDArray[np.uint32], start: int) -> int:
    """Write the extra bits of the tokens in ``far``, in order; returns the bit after the last.

    Bits gather in a 64-bit word, of which the lower half goes to memory after each token whether it is full or not:
    that has no branch, and what is written too early is written again.

    Args:
        moves: tokens, flipped or not; here ``values`` are read.
        far: int64, of :func:`find_far`.
        bits: uint32; bit i of the stream is bit i mod 32 of word i // 32. Room for two bytes per token, and four more.
        start: bit to begin at; what lies in ``bits`` from there on is overwritten.
    """
    source, tokens, _, values = moves
    word, filled = np.uint64(start >> 5), np.uint64(start & 31)
    pending = np.uint64(bits[word]) & ((np.uint64(1) << filled) - np.uint64(1))
    for coordinate in far:
        i = np.uint64(coordinate)
        count = np.int64(_EXTRA_COUNTS[tokens[i]])
        length = abs(np.int64(values[i] & 0x7FFF) - np.int64(source[i] & 0x7FFF))
        extra = np.int64(values[i]) if tokens[i] == LITERAL else length - 1 - (np.int64(1) << count)
        pending |= np.uint64(extra) << filled
        filled += np.uint64(count)
        bits[word] = np.uint32(pending)
        # When 32 bits are full: the next word, and shift by 32. Otherwise both are by 0.
        word += filled >> np.uint64(5)
        pending >>= filled & np.uint64(32)
        filled &= np.uint64(31)
    bits[word] = np.uint32(pending)
    return int(np.int64(word << np.uint64(5) | filled))


def apply_tokens(moves: Moves, bits: Bits, start: int, end: int) -> int:
    """Fill the values of all tokens, as NumPy computes it; returns the bit after their extra bits.

    Nothing is read from ``end`` on: bits beyond it count as zeros.

    Args:
        moves: values are filled.
        bits: uint8, with 4 bytes to spare after the last.
        start: bit where the extra bits begin.
        end: bit after the last.
    """
    source, tokens, flips, values = moves
    steps = tokens.astype(np.int64) - MIDDLE
    lengths = np.abs(steps)
    far = lengths > NEAREST
    counts = np.where(far, np.minimum(lengths - FEWER_BITS, LITERAL_BITS), 0)
    after = start + np.cumsum(counts)
    at = np.minimum(after - counts, end)
    four = sum(bits[(at >> 3) + k].astype(np.int64) << 8 * k for k in range(4))
    extra = (four >> (at & 7)) & ((1 << counts) - 1)
    lengths = np.where(far, (1 << counts) + extra + 1, lengths)
    moved = source + np.where((steps < 0) != (flips != 0), -lengths, lengths)
    values[:] = np.where(tokens == LITERAL, extra, source & 0x8000 | moved & 0x7FFF)
    return int(after[-1]) if tokens.size else start
