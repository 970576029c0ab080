"""What tokens cost when their frequencies are known, and the tables that tell them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.rans import SLOTS
from maskreg.jit import kernel

TOKEN_BITS = 6
INDEX_BITS = 5

Counts = npt.NDArray[np.int64]

_GAMMA_BITS = np.array([2 * (freq + 1).bit_length() - 1 for freq in range(SLOTS + 1)], np.uint8)

_LOG_STEPS = 1 << 12
_REST_BITS = 40
_REST = 1 << _REST_BITS


def _logarithms() -> npt.NDArray[np.float64]:
    """Binary logarithms of 1 to 2 in 4,096 steps, rounded to multiples of 2^-40, float64 ``[4097]``.

    In integers, because the last bits of a library's logarithms differ between machines, and an encoder must not. From
    k to k + 1 a natural logarithm grows by ``2 artanh(1 / (2k + 1))``; three terms of its series are exact to 2^-78.
    """
    unit, sums = 1 << 96, [0]
    for k in range(_LOG_STEPS, 2 * _LOG_STEPS):
        d = 2 * k + 1
        sums.append(sums[-1] + unit // d + unit // (3 * d**3) + unit // (5 * d**5))
    return np.array([((total << 41) // sums[-1] + 1) >> 1 for total in sums]) / 2.0**40


LOGS = _logarithms()
"""A line between two of them is within 1e-8."""


@kernel
def _log2(count: int) -> float:
    """The logarithm of ``count >= 1``, several times as fast as the library's."""
    # The bits of a float64 are its exponent, the place among the logarithms, and the rest of the way to the next.
    bits = np.float64(count).view(np.int64)
    step = (bits >> _REST_BITS) & (_LOG_STEPS - 1)
    rest = np.float64(bits & (_REST - 1)) * (1.0 / _REST)
    return float((bits >> 52) - 1023 + LOGS[step] + rest * (LOGS[step + 1] - LOGS[step]))


@kernel
def span_of(counts: Counts, span: Counts) -> None:
    """The first and the last token counted, and the number of all, into ``span``: int64 ``[3]``."""
    total, first, last = 0, counts.size, -1
    for token in range(counts.size):
        if counts[token]:
            total += counts[token]
            first, last = min(first, token), token
    span[0], span[1], span[2] = first, last, total


@kernel
def bits_of(counts: Counts, first: int, last: int, total: int) -> float:
    """Bits of the tokens counted, and of a table for them."""
    if total == 0:
        return 0.0
    bits = total * _log2(total) + (2 * TOKEN_BITS + INDEX_BITS)
    listed = 0
    for token in range(first, last + 1):
        count = counts[token]
        # Rounded down to the exact frequency: quotients of numbers so small are no nearer to the next integer.
        freq = int(np.float64(count * SLOTS) / np.float64(total))
        listed += _GAMMA_BITS[max(freq, min(count, 1))]
        bits -= count * _log2(max(count, 1))
    return bits + listed


@kernel
def _bits_of_rows(counts: Counts, begin: int, end: int, room: Counts, span: Counts) -> float:
    """Bits of rows taken together."""
    room[:] = 0
    for row in range(begin, end):
        for token in range(room.size):
            room[token] += counts[row, token]
    span_of(room, span)
    return bits_of(room, span[0], span[1], span[2])


@kernel
def plain_window(counts: Counts, classes: int) -> tuple[int, float]:
    """The first of a window of exponents whose tokens take least, and their bits when each class has its own table.

    Args:
        counts: int64 ``[256, 64]``, coordinates by exponent and token; those outside count as the window's ends.
        classes: of the window.
    """
    exponents = counts.shape[0]
    bits, room, span = np.zeros(exponents), np.empty(counts.shape[1], np.int64), np.empty(3, np.int64)
    lowest, highest = exponents, -1
    for exponent in range(exponents):
        bits[exponent] = _bits_of_rows(counts, exponent, exponent + 1, room, span)
        if span[2]:
            lowest, highest = min(lowest, exponent), exponent
    final = max(0, highest - classes + 2)
    best, least = final, np.inf
    for base in range(min(final, max(0, lowest - 1, final - classes)), final + 1):
        inner = base + classes - 1
        taken = _bits_of_rows(counts, lowest, base + 1, room, span)
        taken += _bits_of_rows(counts, inner, highest + 1, room, span)
        for exponent in range(base + 1, min(inner, exponents)):
            taken += bits[exponent]
        if taken < least:
            best, least = base, taken
    return best, least
