"""Small integers as bits, lowest first: plain, Golomb-Rice and Elias-gamma codes, and readers that cannot overrun.

Sources: R. F. Rice, "Some practical universal noiseless coding techniques" (JPL 79-22, 1979); P. Elias, "Universal
codeword sets and representations of the integers" (IEEE Trans. Inf. Theory 21, 1975).

Rice code with parameter k of a signed v: zigzag it to u = 2v, or -2v - 1 when negative; then u // 2^k ones, a zero, and
the low k bits of u. Short for values that are geometrically distributed around 0, as scales and factors nearly are.

    v = -2: u = 3.   k = 0: 1 1 1 0   k = 1: 1 0 1   k = 2: 0 1 1

Gamma code of f >= 0: as many zeros as f + 1 has bits after its first, then f + 1, highest bit first. Short for small
frequencies, without a parameter.

    0: 1   1: 0 1 0   4: 0 0 1 0 1   4,096: 12 zeros, a one, 11 zeros, a one

Readers treat what lies beyond the end as zeros, so a truncated model decodes to something, which the checks of its
length refuse.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel

Bits = npt.NDArray[np.uint8]

Ints = npt.NDArray[np.int8]
"""Small signed integers: scales, factors, flips."""

PLAIN_BITS = 3
"""Bits that store a Rice code's parameter."""

_MOST_ONES = 24
"""Ones of a quotient that are written together."""

_WORD = 24
"""Bits after which a word goes to memory; another value, of at most 32 bits, still fits 63."""


@kernel
def put_bits(bits: Bits, at: int, value: int, count: int) -> int:
    """Write the low ``count`` bits of ``value``, 32 at most, at bit ``at`` of zeros; returns the bit after them."""
    left, byte = (value & ((1 << count) - 1)) << (at & 7), at >> 3
    while left:
        bits[byte] |= np.uint8(left & 0xFF)
        left >>= 8
        byte += 1
    return at + count


@kernel
def get_bits(bits: Bits, at: int, count: int) -> int:
    """``count`` bits, 16 at most, at bit ``at``; beyond the end they are 0."""
    byte = at >> 3
    three = 0
    for i in range(min(3, bits.size - byte)):
        three |= int(bits[byte + i]) << 8 * i
    return (three >> (at & 7)) & ((1 << count) - 1)


@kernel
def _put_bytes(bits: Bits, byte: int, word: int, filled: int) -> tuple[int, int, int]:
    """Write the whole bytes of a word that has ``filled`` bits; returns the next byte, and the word and bits left."""
    while filled >= 8:
        bits[byte] |= np.uint8(word & 0xFF)
        byte, word, filled = byte + 1, word >> 8, filled - 8
    return byte, word, filled


@kernel
def put_rice(bits: Bits, at: int, values: Ints, plain: int) -> int:
    """Write Rice codes with parameter ``plain`` at bit ``at``; returns the bit after them."""
    byte, word, filled = at >> 3, 0, at & 7
    for small in values:
        value = int(small)
        folded = 2 * value if value >= 0 else -2 * value - 1
        # quotient in ones, remainder in plain bits
        ones, rest = folded >> plain, folded & ((1 << plain) - 1)
        while ones > _MOST_ONES:
            word |= ((1 << _MOST_ONES) - 1) << filled
            byte, word, filled = _put_bytes(bits, byte, word, filled + _MOST_ONES)
            ones -= _MOST_ONES
        # lowest first: the ones, a zero, the remainder
        word |= (rest << (ones + 1) | (1 << ones) - 1) << filled
        filled += ones + 1 + plain
        if filled >= _WORD:
            byte, word, filled = _put_bytes(bits, byte, word, filled)
    _put_bytes(bits, byte, word, filled + 7)
    return 8 * byte + filled


@kernel
def get_rice(bits: Bits, at: int, values: Ints, plain: int, most: int) -> int:
    """Fill ``values`` with Rice codes read at bit ``at``; returns the bit after them.

    -1 when a value exceeds ``most`` in magnitude. That shows while its ones are read, so a block of ones takes no time.
    """
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
    # 4 million values, the most there are, have quotients that sum to less than 2^31; 64 bits take four times as long.
    quotients, shift = np.int32(0), np.uint8(plain)
    for value in values:
        folded = np.uint8(np.uint8(np.uint8(value) << np.uint8(1)) ^ np.uint8(value >> np.int8(7)))
        quotients = np.int32(quotients + np.int32(folded >> shift))
    return int(quotients) + values.size * (1 + plain)


@kernel
def put_gamma(bits: Bits, at: int, value: int) -> int:
    """Write the gamma code of ``value >= 0`` at bit ``at``; returns the bit after it."""
    length, reversed_bits = 0, 0
    while (value + 1) >> length:
        reversed_bits = reversed_bits << 1 | ((value + 1) >> length) & 1
        length += 1
    return put_bits(bits, at + length - 1, reversed_bits, length)


@kernel
def get_gamma(bits: Bits, at: int, most: int) -> tuple[int, int]:
    """The value of the gamma code at bit ``at``, -1 when it exceeds ``most``; and the bit after it."""
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
