"""Steps: how far a code went, as one token of 64 and, where it went far, a few bits more.

A step is the difference of the magnitudes (the low 15 bits of the codes), so neighboring numbers are one apart. Token
``t`` stands for ``v = t - 32``: from -16 to 16 for a step of ``v``; from 17 to 27, or -17 to -27, for one of
``2^b + extra + 1`` in the direction of ``v``, where ``b`` is 13 less than the size of ``v`` and ``extra`` has ``b``
bits; and 31 for any code, given whole in 16 bits. A change of sign is such a code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Ints
from maskreg.codec.contexts import TILE
from maskreg.jit import kernel

MIDDLE = 32
"""Token of a step of 0."""

NEAREST = 16
"""The longest step that needs no more than a token."""

FARTHEST = 27
"""Size of ``v`` for the longest steps."""

LITERAL = 63
"""Token of a code that is given whole."""

FEWER_BITS = 13
"""A long step has so many extra bits less than the size of its ``v``."""

LITERAL_BITS = 16
"""Extra bits of a literal."""

_PARTS = 4
"""Counters of each key."""


def _extra_counts() -> npt.NDArray[np.uint8]:
    """How many extra bits a token has, uint8 ``[64]``; of no meaning for near steps."""
    counts: npt.NDArray[np.uint8] = np.maximum(np.abs(np.arange(64) - MIDDLE) - FEWER_BITS, 0).astype(np.uint8)
    counts[LITERAL] = LITERAL_BITS
    return counts


_EXTRA_COUNTS = _extra_counts()


@kernel
def find_far(
    tokens: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.uint8],
    mark_words: npt.NDArray[np.uint64],
    found: npt.NDArray[np.int64],
) -> int:
    """Places of the tokens that have extra bits, in order, into ``found``; how many there are.

    Args:
        tokens: uint8 ``[n]``.
        marks: uint8, a multiple of 8 and at least ``n`` long; room to work in.
        mark_words: uint64, the same memory.
        found: int64, at least ``n``.
    """
    n = tokens.size
    eights = -(-n // 8)
    marks[n : 8 * eights] = 0
    for i in range(n):
        marks[i] = np.uint8(np.uint8(tokens[i] - np.uint8(MIDDLE - NEAREST)) > np.uint8(2 * NEAREST))
    count = 0
    for eight in range(eights):
        word = mark_words[eight]
        while word:
            lowest = word & (~word + np.uint64(1))
            # Of a byte that is 1 among zeros, this product has the number in its highest byte.
            found[count] = 8 * eight + int((lowest * np.uint64(0x0001020304050607)) >> np.uint64(56))
            count += 1
            word ^= lowest
    return count


@kernel
def tokens_of(context: Codes, values: Codes, tokens: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64]) -> None:
    """Tokens of all coordinates, and how many of each there are by exponent.

    Args:
        context: uint16 ``[n]``.
        values: uint16 ``[n]``.
        tokens: uint8 ``[n]``, filled.
        counts: int64 ``[256, 64]``, added to.
    """
    keys, parts = np.empty(TILE, np.uint16), np.zeros((_PARTS, counts.size), np.uint32)
    for start in range(0, values.size, TILE):
        stop = min(start + TILE, values.size)
        before, after, tile = context[start:stop], values[start:stop], tokens[start:stop]
        for i in range(tile.size):
            step = np.int16(np.int16(after[i] & np.uint16(0x7FFF)) - np.int16(before[i] & np.uint16(0x7FFF)))
            length = np.int16(abs(step))
            far = np.int16(length - np.int16(1))
            # Comparisons, because vectors of 16 bits know no logarithm.
            size = np.int16(
                np.int16(NEAREST + 1) + np.int16(far >= 32) + np.int16(far >= 64) + np.int16(far >= 128)
                + np.int16(far >= 256) + np.int16(far >= 512) + np.int16(far >= 1024) + np.int16(far >= 2048)
                + np.int16(far >= 4096) + np.int16(far >= 8192) + np.int16(far >= 16384)
            )  # fmt: skip
            size = length if length <= np.int16(NEAREST) else size
            sign = np.int16(step >> np.int16(15))
            token = np.int16(np.int16(MIDDLE) + np.int16((size ^ sign) - sign))
            flipped = np.int16(after[i] ^ before[i]) < np.int16(0)
            tile[i] = np.uint8(LITERAL) if flipped else np.uint8(token)
        here = keys[: tile.size]
        for i in range(tile.size):
            here[i] = np.uint16((before[i] >> np.uint16(1)) & np.uint16(0xFF << 6)) | np.uint16(tile[i])
        _count(here, parts)
    _sum_up(parts, counts)


@kernel
def count_keys(keys: npt.NDArray[np.uint16], counts: npt.NDArray[np.int64]) -> None:
    """Count keys.

    Args:
        keys: uint16 ``[n]``, kind << 6 | token.
        counts: int64 ``[kinds, 64]``, added to.
    """
    parts = np.zeros((_PARTS, counts.size), np.uint32)
    _count(keys, parts)
    _sum_up(parts, counts)


@kernel
def _count(keys: npt.NDArray[np.uint16], parts: npt.NDArray[np.uint32]) -> None:
    # Several counters of each key: one that was just written cannot be read at once.
    whole = keys.size // _PARTS * _PARTS
    for i in range(0, whole, _PARTS):
        for part in range(_PARTS):
            parts[part, keys[i + part]] += np.uint32(1)
    for i in range(whole, keys.size):
        parts[0, keys[i]] += np.uint32(1)


@kernel
def _sum_up(parts: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> None:
    for part in range(_PARTS):
        for kind in range(counts.shape[0]):
            for token in range(counts.shape[1]):
                counts[kind, token] += parts[part, kind << 6 | token]


@kernel
def extra_bits(
    context: Codes,
    values: Codes,
    tokens: npt.NDArray[np.uint8],
    found: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint32],
    at: int,
) -> int:
    """Write the extra bits of tokens at bit ``at``, in the order of their coordinates; the place after them.

    Args:
        context: uint16 ``[n]``.
        values: uint16 ``[n]``.
        tokens: uint8 ``[n]``, turned round or not.
        found: int64, places of :func:`find_far`.
        bits: uint32, with room for two bytes for each place and four more; bit ``i`` of the stream is bit ``i mod 32``
            of word ``i // 32``.
        at: bit; what follows it is of no meaning.
    """
    word, filled = np.uint64(at >> 5), np.uint64(at & 31)
    pending = np.uint64(bits[word]) & ((np.uint64(1) << filled) - np.uint64(1))
    for place in found:
        i = np.uint64(place)
        count = np.int64(_EXTRA_COUNTS[tokens[i]])
        length = abs(np.int64(values[i] & 0x7FFF) - np.int64(context[i] & 0x7FFF))
        extra = np.int64(values[i]) if tokens[i] == LITERAL else length - 1 - (np.int64(1) << count)
        pending |= np.uint64(extra) << filled
        filled += np.uint64(count)
        bits[word] = np.uint32(pending)
        word += filled >> np.uint64(5)
        pending >>= filled & np.uint64(32)
        filled &= np.uint64(31)
    bits[word] = np.uint32(pending)
    return int(np.int64(word << np.uint64(5) | filled))


@kernel
def apply_steps(
    context: Codes,
    tokens: npt.NDArray[np.uint8],
    flips: Ints,
    values: Codes,
) -> None:
    """Values from tokens without extra bits; those of others are to follow.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``, as decoded.
        flips: int8 ``[n]``, which steps are turned round.
        values: uint16 ``[n]``, filled.
    """
    for i in range(tokens.size):
        step = np.int16(np.int16(tokens[i]) - np.int16(MIDDLE))
        turned = np.int16(np.int16(step ^ np.int16(flips[i])) - np.int16(flips[i]))
        magnitude = np.uint16((context[i] & np.uint16(0x7FFF)) + np.uint16(turned))
        values[i] = np.uint16((context[i] & np.uint16(0x8000)) | (magnitude & np.uint16(0x7FFF)))


@kernel
def apply_far(
    context: Codes,
    tokens: npt.NDArray[np.uint8],
    flips: Ints,
    values: Codes,
    found: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint8],
    at: int,
    end: int,
) -> int:
    """Values of tokens with extra bits, and where those go on; -1 when there are too few.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``, as decoded.
        flips: int8 ``[n]``, which steps are turned round.
        values: uint16 ``[n]``, filled at ``found``.
        found: int64, places of :func:`find_far`.
        bits: uint8, with 4 bytes to spare after the last.
        at: bit of ``bits`` where the extra bits begin.
        end: bit after the last.
    """
    for i in found:
        literal = tokens[i] == LITERAL
        step = int(tokens[i]) - MIDDLE
        count = LITERAL_BITS if literal else abs(step) - FEWER_BITS
        if at + count > end:
            return -1
        byte = at >> 3
        # Four bytes, though three would do: those are one load.
        four = int(bits[byte]) | int(bits[byte + 1]) << 8 | int(bits[byte + 2]) << 16 | int(bits[byte + 3]) << 24
        extra = (four >> (at & 7)) & ((1 << count) - 1)
        at += count
        if literal:
            values[i] = np.uint16(extra)
            continue
        length = (1 << count) + extra + 1
        if (step < 0) != (flips[i] != 0):
            length = -length
        magnitude = (int(context[i]) & 0x7FFF) + length
        values[i] = np.uint16((int(context[i]) & 0x8000) | (magnitude & 0x7FFF))
    return at


@kernel
def apply_each(
    context: Codes,
    tokens: npt.NDArray[np.uint8],
    flips: Ints,
    values: Codes,
    bits: npt.NDArray[np.uint8],
    at: int,
    count: int,
) -> int:
    """Values from tokens of all kinds, for where many have extra bits; the bit after theirs.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``, as decoded.
        flips: int8 ``[n]``, which steps are turned round.
        values: uint16 ``[n]``, filled.
        bits: uint8, as many as tokens may have, and 4 bytes to spare.
        at: bit of ``bits`` where the extra bits begin.
        count: how many tokens.
    """
    for i in range(count):
        step = int(tokens[i]) - MIDDLE
        size, extra = abs(step), 0
        if size > NEAREST:
            length = min(size - FEWER_BITS, LITERAL_BITS)
            byte = at >> 3
            three = int(bits[byte]) | int(bits[byte + 1]) << 8 | int(bits[byte + 2]) << 16
            extra = (three >> (at & 7)) & ((1 << length) - 1)
            size = (1 << length) + extra + 1
            at += length
        moved = int(context[i]) + (-size if (step < 0) != (flips[i] != 0) else size)
        near = (int(context[i]) & 0x8000) | (moved & 0x7FFF)
        values[i] = np.uint16(extra if tokens[i] == LITERAL else near)
    return at
