"""Small integers as bits, lowest first: plain, Golomb-Rice and Elias-gamma codes, and a reader that cannot overrun.

Sources: R. F. Rice, "Some practical universal noiseless coding techniques" (JPL 79-22, 1979); P. Elias, "Universal
codeword sets and representations of the integers" (IEEE Trans. Inf. Theory 21, 1975).

Rice code with parameter k of a signed v: zigzag it to u = 2v, or -2v - 1 when negative; then u // 2^k ones, a zero, and
the low k bits of u. Short for values that are geometrically distributed around 0, as scales and factors nearly are.

    v = -2: u = 3.   k = 0: 1 1 1 0   k = 1: 1 0 1   k = 2: 0 1 1

Gamma code of f >= 0: as many zeros as f + 1 has bits after its first, then f + 1, highest bit first. Short for small
frequencies, without a parameter.

    0: 1   1: 0 1 0   4: 0 0 1 0 1   4,096: 12 zeros, a one, 11 zeros, a one

Here a byte of 0 or 1 stands for each bit. The kernels of :mod:`maskreg.codec.layout` write and read whole models, with
the bits in place: native/src/model.c.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
"""Packed: 8 to a byte, lowest first."""

Flags = npt.NDArray[np.uint8]
"""0 or 1 each."""

Ints = npt.NDArray[np.int8]
"""Small signed integers: scales, factors, flips."""

PLAIN_BITS = 3
"""Bits that store a Rice code's parameter."""


def pack_flags(flags: list[Flags]) -> bytes:
    """Flags as bits, one array after another, padded to a byte with zeros."""
    return np.packbits(np.concatenate(flags), bitorder="little").tobytes()


def pack_bits(numbers: list[tuple[int, int]]) -> bytes:
    """Numbers of some bits, one after another, lowest first; filled up to a byte with zeros."""
    packed = at = 0
    for number, bits in numbers:
        packed |= number << at
        at += bits
    return packed.to_bytes(-(-at // 8), "little")


def fixed(values: npt.ArrayLike, count: int) -> Flags:
    """The low ``count`` bits of each value."""
    return (np.asarray(values)[..., None] >> np.arange(count) & 1).astype(np.uint8).reshape(-1)


def _folded(values: Ints) -> npt.NDArray[np.int64]:
    """Integers 0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ..."""
    wide = values.astype(np.int64)
    return wide << 1 ^ wide >> 63


def rice(values: Ints, plain: int) -> Flags:
    """Rice codes of values with parameter ``plain``."""
    folded = _folded(values)
    ones = folded >> plain
    ends = np.cumsum(ones + 1 + plain)
    zeros = ends - 1 - plain
    # Up by one where a code begins, down by one at its zero: the sums are its ones.
    edges = np.zeros(rice_bits(values, plain) + 1, np.int8)
    edges[zeros - ones] = 1
    edges[zeros] -= 1
    flags = np.cumsum(edges[:-1], dtype=np.int8).view(np.uint8)
    for bit in range(plain):
        flags[zeros + 1 + bit] = folded >> bit & 1
    return flags


def rice_bits(values: Ints, plain: int) -> int:
    """Bits that :func:`rice` takes."""
    return int((_folded(values) >> plain).sum()) + values.size * (1 + plain)


def best_rice(values: Ints) -> tuple[int, int]:
    """The Rice parameter under which values are shortest, the smallest if there are several, and the bits they take."""
    bits, plain = min((rice_bits(values, plain), plain) for plain in range(1 << PLAIN_BITS))
    return plain, bits


def gamma(values: npt.ArrayLike) -> Flags:
    """Gamma codes of values of at most 2^52."""
    more = np.asarray(values, np.int64) + 1
    lengths = np.frexp(more)[1].astype(np.int64)
    ends = np.cumsum(2 * lengths - 1)
    flags = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    for bit in range(int(lengths.max(initial=0))):
        longer = lengths > bit
        flags[ends[longer] - 1 - bit] = more[longer] >> bit & 1
    return flags


class Reader:
    """Reads codes one after another.

    What lies beyond the end reads as zeros, so a truncated model gives some values, which the checks of its length
    refuse.
    """

    def __init__(self, packed: Bits) -> None:
        self.at = 0
        self._flags = np.unpackbits(packed, bitorder="little").tobytes()

    def fixed(self, count: int) -> int:
        """A number of ``count`` bits."""
        flags = self._flags[self.at : self.at + count]
        self.at += count
        return sum(flag << bit for bit, flag in enumerate(flags))

    def rice(self, count: int, plain: int, most: int) -> Ints | None:
        """So many Rice codes; None when a value exceeds ``most`` in magnitude.

        That shows while its ones are read, so a block of ones takes no time.
        """
        zeros, quotients = np.empty(count, np.int64), np.empty(count, np.int64)
        for i in range(count):
            zero = self._next(0, self.at + (2 * most >> plain) + 1)
            quotient = zero - self.at
            if quotient << plain > 2 * most:
                return None
            zeros[i], quotients[i] = zero, quotient
            self.at = zero + 1 + plain
        flags = np.frombuffer(self._flags + b"\0", np.uint8)
        folded = quotients << plain
        for bit in range(plain):
            folded |= flags[np.minimum(zeros + 1 + bit, flags.size - 1)].astype(np.int64) << bit
        if folded.max(initial=0) > 2 * most:
            return None
        return (folded >> 1 ^ -(folded & 1)).astype(np.int8)

    def gamma(self, most: int) -> int:
        """The value of a gamma code; -1 when it exceeds ``most``."""
        longest = (most + 1).bit_length() - 1
        zeros = self._next(1, self.at + longest + 1) - self.at
        if zeros > longest:
            return -1
        self.at += zeros
        value = 0
        for _ in range(zeros + 1):
            value = 2 * value + self.fixed(1)
        return value - 1 if value - 1 <= most else -1

    def _next(self, flag: int, end: int) -> int:
        """Where the next 0 or 1 is; ``end`` when there is none before that."""
        position = self._flags.find(flag, self.at, end)
        if position >= 0:
            return position
        return end if flag else min(end, max(self.at, len(self._flags)))
