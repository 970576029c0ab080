"""Small integers as bits, lowest first: plain, Golomb-Rice and Elias-gamma codes, and a reader that cannot overrun.

Sources: R. F. Rice, "Some practical universal noiseless coding techniques" (JPL 79-22, 1979); P. Elias, "Universal
codeword sets and representations of the integers" (IEEE Trans. Inf. Theory 21, 1975).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

Bits = npt.NDArray[np.uint8]

Ints = npt.NDArray[np.int8]
"""Scales and factors: small signed integers."""

PLAIN_BITS = 3
"""Bits of a Rice code's own parameter."""

_MOST_ONES = 24
"""Of a quotient, put into a word at once."""

_WORD = 24
"""Bits that are written together, about; another 32 still fit 63."""


@kernel
def put_bits(bits: Bits, at: int, value: int, count: int) -> int:
    """Write the low ``count`` bits of ``value``, 32 at most, at bit ``at`` of zeros; the place after them."""
    left, byte = (value & ((1 << count) - 1)) << (at & 7), at >> 3
    while left:
        bits[byte] |= np.uint8(left & 0xFF)
        left >>= 8
        byte += 1
    return at + count


@kernel
def get_bits(bits: Bits, at: int, count: int) -> int:
    """``count`` bits, 16 at most, at ``at``; what lies beyond the end reads as 0."""
    byte = at >> 3
    three = 0
    for i in range(min(3, bits.size - byte)):
        three |= int(bits[byte + i]) << 8 * i
    return (three >> (at & 7)) & ((1 << count) - 1)


@kernel
def _put_bytes(bits: Bits, byte: int, word: int, filled: int) -> tuple[int, int, int]:
    """Write the whole bytes of ``filled`` bits from byte ``byte`` on, and return what is left of all three."""
    while filled >= 8:
        bits[byte] |= np.uint8(word & 0xFF)
        byte, word, filled = byte + 1, word >> 8, filled - 8
    return byte, word, filled


@kernel
def put_rice(bits: Bits, at: int, values: Ints, plain: int) -> int:
    """Write small signed integers: zigzag, the quotient by ``2^plain`` in ones and a zero, then ``plain`` bits."""
    byte, word, filled = at >> 3, 0, at & 7
    for small in values:
        value = int(small)
        folded = 2 * value if value >= 0 else -2 * value - 1
        ones, rest = folded >> plain, folded & ((1 << plain) - 1)
        while ones > _MOST_ONES:
            word |= ((1 << _MOST_ONES) - 1) << filled
            byte, word, filled = _put_bytes(bits, byte, word, filled + _MOST_ONES)
            ones -= _MOST_ONES
        word |= (rest << (ones + 1) | (1 << ones) - 1) << filled
        filled += ones + 1 + plain
        if filled >= _WORD:
            byte, word, filled = _put_bytes(bits, byte, word, filled)
    _put_bytes(bits, byte, word, filled + 7)
    return 8 * byte + filled


@kernel
def get_rice(bits: Bits, at: int, values: Ints, plain: int, most: int) -> int:
    """Read signed integers into ``values``; the place after them, or -1 when one exceeds ``most`` in magnitude."""
    largest = 2 * most + 1
    for i in range(values.size):
        quotient = 0
        byte = at >> 3
        word = (int(bits[byte]) if byte < bits.size else 0) >> (at & 7)
        left = 8 - (at & 7)
        while word & 1:
            quotient += 1
            word >>= 1
            left -= 1
            if quotient << plain > largest:
                return -1
            if not left:
                byte += 1
                word = int(bits[byte]) if byte < bits.size else 0
                left = 8
        at += quotient + 1
        folded = quotient << plain | (get_bits(bits, at, plain) if plain else 0)
        at += plain
        value = folded >> 1 if not folded & 1 else -((folded + 1) >> 1)
        if abs(value) > most:
            return -1
        values[i] = np.int8(value)
    return at


@kernel
def rice_bits(values: Ints, plain: int) -> int:
    """Bits that :func:`put_rice` takes."""
    # Quotients of four million values, the most there are, fit 32 bits, which sums of 64 would be four times as slow.
    quotients, shift = np.int32(0), np.uint8(plain)
    for value in values:
        folded = np.uint8(np.uint8(np.uint8(value) << np.uint8(1)) ^ np.uint8(value >> np.int8(7)))
        quotients = np.int32(quotients + np.int32(folded >> shift))
    return int(quotients) + values.size * (1 + plain)


@kernel
def put_gamma(bits: Bits, at: int, value: int) -> int:
    """Write ``value >= 0``: as many zeros as ``value + 1`` has bits after the first, then it, highest bit first."""
    length, turned = 0, 0
    while (value + 1) >> length:
        turned = turned << 1 | ((value + 1) >> length) & 1
        length += 1
    return put_bits(bits, at + length - 1, turned, length)


@kernel
def get_gamma(bits: Bits, at: int, most: int) -> tuple[int, int]:
    """A value and the place after it; a value of -1 when it exceeds ``most``."""
    length = 0
    while not get_bits(bits, at, 1):
        at += 1
        length += 1
        if (1 << length) - 1 > most:
            return -1, at
    value = 0
    for _ in range(length + 1):
        value = value << 1 | get_bits(bits, at, 1)
        at += 1
    return (value - 1 if value - 1 <= most else -1), at
