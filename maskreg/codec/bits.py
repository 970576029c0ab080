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


@kernel
def put_bits(bits: Bits, at: int, value: int, count: int) -> int:
    """Write the low ``count`` bits of ``value`` at bit ``at`` of zeros; the place after them."""
    for i in range(count):
        bits[(at + i) >> 3] |= np.uint8(((value >> i) & 1) << ((at + i) & 7))
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
def put_rice(bits: Bits, at: int, values: Ints, plain: int) -> int:
    """Write small signed integers: zigzag, the quotient by ``2^plain`` in ones and a zero, then ``plain`` bits."""
    for small in values:
        value = int(small)
        folded = 2 * value if value >= 0 else -2 * value - 1
        for _ in range(folded >> plain):
            at = put_bits(bits, at, 1, 1)
        at = put_bits(bits, at + 1, folded, plain)
    return at


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
    total = 0
    for small in values:
        value = int(small)
        folded = 2 * value if value >= 0 else -2 * value - 1
        total += (folded >> plain) + 1 + plain
    return total


@kernel
def put_gamma(bits: Bits, at: int, value: int) -> int:
    """Write ``value >= 0``: as many zeros as ``value + 1`` has bits after the first, then it, highest bit first."""
    length = 0
    while (value + 1) >> (length + 1):
        length += 1
    at += length
    for i in range(length, -1, -1):
        at = put_bits(bits, at, ((value + 1) >> i) & 1, 1)
    return at


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
