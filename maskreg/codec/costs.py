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
from maskreg.native import library

TOKEN_BITS = 6
INDEX_BITS = 5

Counts = npt.NDArray[np.int64]
Costs = npt.NDArray[np.float64]

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


def _log2(counts: Counts) -> Costs:
    """Binary logarithms of counts that are at least 1.

    A float64 holds the integer part already, as its exponent. The top 12 bits of its mantissa are an index into the
    table, the other 40 say how far to interpolate.
    """
    bits = counts.astype(np.float64).view(np.int64)
    step = (bits >> _REST_BITS) & (_LOG_STEPS - 1)
    rest = (bits & (_REST - 1)) * (1.0 / _REST)
    logs: Costs = (bits >> 52) - 1023 + LOGS[step] + rest * (LOGS[step + 1] - LOGS[step])
    return logs


def bits_of(counts: Counts) -> Costs:
    """Bits of the tokens of each row, and of a table for them; 0 for an empty row.

    Kernels do the same for several rows at once: native/src/costs.c.

    Args:
        counts: int64 ``[rows, 64]``, tokens counted; each row sums to less than 2^40.
    """
    totals, occurs = counts.sum(axis=1), counts > 0
    some = np.maximum(totals, 1)
    # From the first token that occurs to the last.
    listed = np.logical_or.accumulate(occurs, axis=1)
    listed &= np.logical_or.accumulate(occurs[:, ::-1], axis=1)[:, ::-1]
    # Rounds down exactly like integer division: both operands are below 2^53, so the quotient cannot round up to an
    # integer that it does not reach.
    freqs = (counts * SLOTS / some[:, None]).astype(np.int64)
    of_table = np.where(listed, _GAMMA_BITS[np.maximum(freqs, occurs)], 0).sum(axis=1)
    of_tokens = counts * _log2(np.maximum(counts, 1))
    begin = some * _log2(some) + (2 * TOKEN_BITS + INDEX_BITS)
    # Token after token: sums in another order would differ in their last bits.
    bits = np.subtract.accumulate(np.column_stack([begin, of_tokens]), axis=1)[:, -1] + of_table
    return np.where(totals > 0, bits, 0.0)


def plain_window(counts: Counts, classes: int) -> tuple[int, float]:
    """The exponent at which a window of exponents begins that costs least, and its bits, one table per exponent.

    Exponents outside the window share the table of its first or last. The best window ends close to the highest
    exponent that occurs, since most weights lie in the upper binades; so only a few windows are tried:

        16 classes, exponents 90 to 126 occur: windows that begin at 96 to 112

    Args:
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
        classes: exponents in the window, at least 2.
    """
    if compiled := library():
        least = np.empty(1)
        first = compiled.lib.maskreg_plain_window(
            compiled.read(counts), classes, compiled.read(LOGS), compiled.write(least)
        )
        return first, float(least[0])
    bits, sums = bits_of(counts), np.zeros((len(counts) + 1, counts.shape[1]), np.int64)
    np.cumsum(counts, axis=0, out=sums[1:])
    occurring = np.flatnonzero(counts.any(axis=1))
    lowest, highest = (occurring[0], occurring[-1]) if occurring.size else (len(counts), -1)
    final = max(0, highest - classes + 2)
    bases = np.arange(min(final, max(0, lowest - 1, final - classes)), final + 1)
    inner = np.minimum(bases + classes - 1, len(counts))
    outer = bits_of(sums[bases + 1]) + bits_of(sums[-1] - sums[inner])
    costs = [
        np.add.accumulate([cost, *bits[base + 1 : end]])[-1]
        for base, end, cost in zip(bases, inner, outer, strict=True)
    ]
    best = int(np.argmin(costs))
    return int(bases[best]), float(costs[best])
