"""Estimated bits of tokens and of their frequency tables, by which the encoder chooses contexts and tables.

Tokens that are counted c_0, c_1, ... and sum to t take ``t log2 t - sum(c_i log2 c_i)`` bits when their frequencies are
exact. Their table adds its first and last token and a gamma code per frequency between them.

    counts 6 and 2: 8 * 3 - 6 * 2.585 - 2 * 1 = 6.49 bits, that is 0.81 a token
    frequencies 3,072 and 1,024: 23 and 21 bits of gamma codes. So few tokens do not pay for a table.
"""

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

    In integers, because the last bits of a library's logarithms differ between machines, and the encoder's choices must
    not. From k to k + 1 the natural logarithm grows by ``2 artanh(1 / (2k + 1)) = 2 (1/d + 1/(3 d^3) + ...)`` with
    d = 2k + 1; three terms are exact to 2^-78. The common factor 2 / ln 2 cancels in ``total / sums[-1]``.
    """
    unit, sums = 1 << 96, [0]
    for k in range(_LOG_STEPS, 2 * _LOG_STEPS):
        d = 2 * k + 1
        sums.append(sums[-1] + unit // d + unit // (3 * d**3) + unit // (5 * d**5))
    return np.array([((total << 41) // sums[-1] + 1) >> 1 for total in sums]) / 2.0**40


LOGS = _logarithms()
"""Interpolated linearly, they are within 1e-8."""


@kernel
def _log2(count: int) -> float:
    """The binary logarithm of ``count >= 1``, several times as fast as the library's.

    A float64 holds the integer part already, as its exponent. The top 12 bits of its mantissa are an index into the
    table, the other 40 say how far to interpolate.
    """
    bits = np.float64(count).view(np.int64)
    step = (bits >> _REST_BITS) & (_LOG_STEPS - 1)
    rest = np.float64(bits & (_REST - 1)) * (1.0 / _REST)
    return float((bits >> 52) - 1023 + LOGS[step] + rest * (LOGS[step + 1] - LOGS[step]))


@kernel
def extent_of(counts: Counts, extent: Counts) -> None:
    """Fill ``extent``, int64 ``[3]``: the first token that was counted, the last, and the sum of all counts."""
    total, first, last = 0, counts.size, -1
    for token in range(counts.size):
        if counts[token]:
            total += counts[token]
            first, last = min(first, token), token
    extent[0], extent[1], extent[2] = first, last, total


@kernel
def bits_of(counts: Counts, first: int, last: int, total: int) -> float:
    """Bits of the tokens counted, and of a table for them.

    Args:
        counts: int64 ``[64]``.
        first: token before which all counts are 0.
        last: token after which all counts are 0.
        total: their sum.
    """
    if total == 0:
        return 0.0
    bits = total * _log2(total) + (2 * TOKEN_BITS + INDEX_BITS)
    listed = 0
    for token in range(first, last + 1):
        count = counts[token]
        # Rounds down exactly like integer division: both operands are below 2^53, so the quotient cannot round up to
        # an integer that it does not reach.
        freq = int(np.float64(count * SLOTS) / np.float64(total))
        listed += _GAMMA_BITS[max(freq, min(count, 1))]
        bits -= count * _log2(max(count, 1))
    return bits + listed


@kernel
def _bits_of_rows(counts: Counts, begin: int, end: int, scratch: Counts, extent: Counts) -> float:
    """Bits of rows ``[begin, end)`` when they share a table."""
    scratch[:] = 0
    for row in range(begin, end):
        for token in range(scratch.size):
            scratch[token] += counts[row, token]
    extent_of(scratch, extent)
    return bits_of(scratch, extent[0], extent[1], extent[2])


@kernel
def plain_window(counts: Counts, classes: int) -> tuple[int, float]:
    """The exponent at which a window of exponents begins that costs least, and its bits, one table per exponent.

    Exponents outside the window share the table of its first or last. The best window ends close to the highest
    exponent that occurs, since most weights lie in the upper binades; so only a few windows are tried:

        16 classes, exponents 90 to 126 occur: windows that begin at 96 to 112

    Args:
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
        classes: exponents in the window.
    """
    exponents = counts.shape[0]
    bits, scratch, extent = np.zeros(exponents), np.empty(counts.shape[1], np.int64), np.empty(3, np.int64)
    lowest, highest = exponents, -1
    for exponent in range(exponents):
        bits[exponent] = _bits_of_rows(counts, exponent, exponent + 1, scratch, extent)
        if extent[2]:
            lowest, highest = min(lowest, exponent), exponent
    final = max(0, highest - classes + 2)
    best, least = final, np.inf
    for base in range(min(final, max(0, lowest - 1, final - classes)), final + 1):
        inner = base + classes - 1
        cost = _bits_of_rows(counts, lowest, base + 1, scratch, extent)
        cost += _bits_of_rows(counts, inner, highest + 1, scratch, extent)
        for exponent in range(base + 1, min(inner, exponents)):
            cost += bits[exponent]
        if cost < least:
            best, least = base, cost
    return best, least
