"""Frequency tables: cells with similar tokens share one, because a table costs bits in the block and cache to decode.

The encoder chooses contexts and tables by estimated bits. Tokens that are counted c_0, c_1, ... and sum to t take ``t
log2 t - sum(c_i log2 c_i)`` bits when their frequencies are exact. Their table adds its first and last token and a
gamma code per frequency between them.

    counts 6 and 2: 8 * 3 - 6 * 2.585 - 2 * 1 = 6.49 bits, that is 0.81 a token
    frequencies 3,072 and 1,024: 23 and 21 bits of gamma codes. So few tokens do not pay for a table.

Which cells share a table is found greedily:

    every cell that occurs is a group
    twice, first for pairs of groups whose cells are neighbors, then for all pairs:
        loss of a pair = bits as one group - bits as two     (negative: the table that is saved pays for the worse fit)
        while the lowest loss is negative, or (second time) there are more than 32 groups:
            merge that pair; compute the losses of its pairs again

    cell A: 900 still, 100 moved    469 bits of tokens + 57 of table
    cell B: 910 still, 90 moved     436 + 57
    cell C: 400 still, 600 moved    971 + 61
    A with B                        906 + 57: loss -57, so they are merged
    AB with C                       2,495 + 61: loss +561, so they stay apart

Neighbors come first because they are few and nearly always the best: of 256 cells, 472 pairs instead of 32,640.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.codec.ulp_steps import TOKENS
from maskreg.native import library

TABLE_BITS = 12
SLOTS = 1 << TABLE_BITS
"""The frequencies of a table sum to this."""

Counts = npt.NDArray[np.int64]

_LOG_STEPS = 1 << 12


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


def plain_window(counts: Counts, classes: int) -> tuple[int, float]:
    """The exponent at which a window of exponents begins that costs least, and its bits, one table per exponent.

    Exponents outside the window share the table of its first or last. The best window ends close to the highest
    exponent that occurs, since most weights lie in the upper binades; so only a few windows are tried:

        16 classes, exponents 90 to 126 occur: windows that begin at 96 to 112
    """
    compiled = library()
    least = np.empty(1)
    first = compiled.lib.maskreg_plain_window(
        compiled.read(counts), classes, compiled.read(LOGS), compiled.write(least)
    )
    return first, float(least[0])


MAX_TABLES = 32
"""32 decoding tables take 512 KiB, which fits a core's second-level cache."""

_SPARE_PAIRS = 64  # pairs of cells for which the kernel has room beyond those there are


@dataclass(frozen=True)
class Tables:
    """Frequency tables, ``[tables, 64]``, whose rows sum to 4,096; and the table of each cell, ``[cells]``."""

    of_cell: npt.NDArray[np.uint8]
    freqs: npt.NDArray[np.uint16]


def build_tables(counts: Counts, wide: int) -> tuple[Tables, float]:
    """Tables for cells, and the bits that tokens and tables take together (without extra bits).

    ``counts``: int64 ``[cells, 64]``, tokens by cell; they sum to less than 2^40. At most 256 cells. ``wide``: size
    classes per exponent class: cells k and k + wide are neighbors.
    """
    cells = len(counts)
    compiled = library()
    of_cell, freqs, bits = np.empty(cells, np.uint8), np.empty((MAX_TABLES, TOKENS), np.uint16), np.empty(1)
    pairs = cells * (cells - 1) // 2 + _SPARE_PAIRS
    used = compiled.lib.maskreg_build_tables(
        compiled.write(counts.copy()), cells, wide, compiled.read(LOGS), compiled.write(np.empty(pairs)),
        compiled.write(np.empty((2, pairs), np.uint8)), compiled.write(of_cell), compiled.write(freqs),
        compiled.write(bits),
    )  # fmt: skip
    return Tables(of_cell, freqs[:used]), float(bits[0])


def slots_of(tables: Tables) -> npt.NDArray[np.uint32]:
    """Encoding tables, uint32 ``[cells * 64]``: a token's first slot << 16 | its frequency; 0 for tokens with none."""
    compiled, slots = library(), np.empty(tables.of_cell.size * TOKENS, np.uint32)
    compiled.lib.maskreg_fill_slots(
        compiled.read(tables.freqs), compiled.read(tables.of_cell), tables.of_cell.size, compiled.write(slots)
    )
    return slots
