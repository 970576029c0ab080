"""Frequency tables: cells with similar tokens share one, because a table costs bits in the block and cache to decode.

The encoder chooses contexts and tables by estimated bits. Tokens that are counted c_0, c_1, ... and sum to t take ``t
log2 t - sum(c_i log2 c_i)`` bits when their frequencies are exact. Their table adds its first and last token and a
gamma code per frequency between them.

    counts 6 and 2: 8 * 3 - 6 * 2.585 - 2 * 1 = 6.49 bits, that is 0.81 a token
    frequencies 3,072 and 1,024: 23 and 21 bits of gamma codes. So few tokens do not pay for a table.

Frequency tables: cells with similar tokens share one, because a table costs bits in the block and cache to decode.

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

from maskreg.codec.bits import Flags, Reader, fixed, gamma
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, MIDDLE
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
    """Bits of the tokens of each row, ``[rows, 64]``, and of a table for them; 0 for an empty row.

    Kernels do the same for several rows at once: native/src/costs.c. Each row sums to less than 2^40.
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


MAX_TABLES = 32
"""32 decoding tables take 512 KiB, which fits a core's second-level cache."""

_RARE = 40_000
"""A token rarer than one in this many has no slot and becomes a literal: the slot would cost the others more."""


_SPARE_PAIRS = 64  # pairs of cells for which the kernel has room beyond those there are


@dataclass(frozen=True)
class Tables:
    """Frequency tables, ``[tables, 64]``, whose rows sum to 4,096; and the table of each cell, ``[cells]``."""

    of_cell: npt.NDArray[np.uint8]
    freqs: npt.NDArray[np.uint16]


@dataclass
class _Groups:
    """Groups of cells; a group is known by its first cell.

    Attributes:
        counts: int64 ``[cells, 64]``, tokens of each group.
        bits: float64 ``[cells]``, of its tokens and table; 0 when it is gone.
        live: bool ``[cells]``, whether it occurs and is not gone.
        of_cell: int64 ``[cells]``, the group of each cell; -1 when the cell never occurs.
    """

    counts: Counts
    bits: Costs
    live: npt.NDArray[np.bool_]
    of_cell: Counts

    def unite(self, left: int, right: int, loss: float) -> None:
        """Merge group ``right`` into group ``left``."""
        self.counts[left] += self.counts[right]
        self.bits[left], self.bits[right] = self.bits[left] + self.bits[right] + loss, 0.0
        self.live[right] = False
        self.of_cell[self.of_cell == right] = left


@dataclass
class _Pairs:
    """Pairs of groups that may be merged, int64 ``[n]`` each, and the bits lost by that, float64 ``[n]``."""

    left: Counts
    right: Counts
    loss: Costs


def _loss(groups: _Groups, left: Counts, right: Counts) -> Costs:
    """Bits lost when pairs of groups are merged."""
    merged = groups.counts[left] + groups.counts[right]
    return bits_of(merged) - groups.bits[left] - groups.bits[right]


def _list_pairs(groups: _Groups, wide: int, *, near: bool) -> _Pairs:
    """Pairs of groups, neighbors alone or all."""
    left, right = np.triu_indices(groups.live.size, 1)
    kept = groups.live[left] & groups.live[right]
    if near:
        # They share an edge.
        kept &= right // wide - left // wide + np.abs(right % wide - left % wide) <= 1
    left, right = left[kept], right[kept]
    return _Pairs(left, right, _loss(groups, left, right))


def _renew(groups: _Groups, left: int, right: int, pairs: _Pairs) -> _Pairs:
    """The pairs after ``right`` was merged into ``left``: pairs with either become pairs with ``left``.

    One per partner is left, where the first of them was.
    """
    of_left, of_right = np.isin(pairs.left, (left, right)), np.isin(pairs.right, (left, right))
    changed = of_left | of_right
    partners = np.where(of_left, pairs.right, pairs.left)
    kept = ~changed
    kept[np.flatnonzero(changed)[np.unique(partners[changed], return_index=True)[1]]] = True
    # The pair itself is no more.
    kept &= ~(of_left & of_right)
    renewed = changed[kept]
    result = _Pairs(
        np.where(renewed, left, pairs.left[kept]),
        np.where(renewed, partners[kept], pairs.right[kept]),
        pairs.loss[kept],
    )
    result.loss[renewed] = _loss(groups, result.left[renewed], result.right[renewed])
    return result


def _merge(counts: Counts, wide: int, limit: int) -> tuple[_Groups, float]:
    """Groups of cells, and the bits of all. ``counts``: int64 ``[cells, 64]``; replaced by the counts of the groups."""
    live: npt.NDArray[np.bool_] = np.any(counts, axis=1)
    groups = _Groups(counts, bits_of(counts), live, np.where(live, np.arange(len(counts)), -1))
    for near in (True, False):
        pairs = _list_pairs(groups, wide, near=near)
        while pairs.loss.size:
            best = int(pairs.loss.argmin())
            # Merging at a loss, to get down to the limit, waits until all pairs compete.
            if pairs.loss[best] >= 0 and (near or groups.live.sum() <= limit):
                break
            left, right = int(pairs.left[best]), int(pairs.right[best])
            groups.unite(left, right, pairs.loss[best])
            pairs = _renew(groups, left, right, pairs)
    return groups, float(np.add.accumulate(groups.bits)[-1])


def _normalized(counts: Counts) -> npt.NDArray[np.uint16]:
    """Frequencies that sum to 4,096, at least 1 for every token that occurs, but for the rarest: uint16 ``[64]``.

        tokens that are too rare become literals
        freq = count * 4096 / total, rounded, at least 1
        what is missing to 4,096 goes to the most frequent; what is too much is taken from it, by ones, as long as it
        is the most frequent: a slot more or less changes its cost least

    counts 9,000, 990, 9, 1: freqs 3,686, 406, 4, 1 sum to 4,097; the first becomes 3,685.
    """
    total, kept = counts.sum(), counts.copy()
    rare = counts * _RARE < total
    rare[[MIDDLE, LITERAL]] = False
    kept[LITERAL] += kept[rare].sum()
    kept[rare] = 0
    # count * 4096 / total, rounded to the nearest
    freqs = np.maximum((2 * SLOTS * kept + total) // (2 * total), kept > 0)
    highest = int(freqs.argmax())
    while freqs.sum() > SLOTS:
        if freqs.max() > freqs[highest]:
            highest = int(freqs.argmax())
        freqs[highest] -= 1
    freqs[highest] += SLOTS - freqs.sum()
    whole: npt.NDArray[np.uint16] = freqs.astype(np.uint16)
    return whole


def build_tables(counts: Counts, wide: int) -> tuple[Tables, float]:
    """Tables for cells, and the bits that tokens and tables take together (without extra bits).

    ``counts``: int64 ``[cells, 64]``, tokens by cell; they sum to less than 2^40. At most 256 cells. ``wide``: size
    classes per exponent class: cells k and k + wide are neighbors.
    """
    cells = len(counts)
    if compiled := library():
        of_cell, freqs, bits = np.empty(cells, np.uint8), np.empty((MAX_TABLES, TOKENS), np.uint16), np.empty(1)
        pairs = cells * (cells - 1) // 2 + _SPARE_PAIRS
        used = compiled.lib.maskreg_build_tables(
            compiled.write(counts.copy()), cells, wide, compiled.read(LOGS), compiled.write(np.empty(pairs)),
            compiled.write(np.empty((2, pairs), np.uint8)), compiled.write(of_cell), compiled.write(freqs),
            compiled.write(bits),
        )  # fmt: skip
        return Tables(of_cell, freqs[:used]), float(bits[0])
    groups, total = _merge(counts.copy(), wide, MAX_TABLES)
    firsts = np.flatnonzero(groups.live)
    rows = [_normalized(groups.counts[first]) for first in firsts]
    numbers = np.searchsorted(firsts, groups.of_cell)
    # A cell that never occurs repeats the table before it, which costs one bit.
    before = np.maximum.accumulate(np.where(groups.of_cell >= 0, np.arange(cells), -1))
    return Tables(np.where(before >= 0, numbers[before], 0).astype(np.uint8), np.stack(rows)), total


def pack_tables(tables: Tables) -> list[Flags]:
    """Tables as bits.

    Per cell: 1 when it has the table of the cell before, else 0 and the table's number in 5 bits. Per table: its first
    and last token in 6 bits each, then a gamma code per frequency between them. FORMAT.md section 5.2.
    """
    flags, before = [], 0
    for table in tables.of_cell.tolist():
        flags.append(fixed(1, 1) if table == before else fixed(table << 1, 1 + INDEX_BITS))
        before = table
    for row in tables.freqs:
        first, last = np.flatnonzero(row)[[0, -1]]
        flags += [fixed([first, last], TOKEN_BITS), gamma(row[first : last + 1])]
    return flags


def unpack_tables(reader: Reader, cells: int, count: int) -> Tables | None:
    """So many tables for so many cells; None when they are invalid."""
    tables, before = Tables(np.zeros(cells, np.uint8), np.zeros((count, TOKENS), np.uint16)), 0
    for cell in range(cells):
        if not reader.fixed(1):
            before = reader.fixed(INDEX_BITS)
        if before >= count:
            return None
        tables.of_cell[cell] = before
    for row in tables.freqs:
        first, last, total = reader.fixed(TOKEN_BITS), reader.fixed(TOKEN_BITS), 0
        for token in range(first, last + 1):
            freq = reader.gamma(SLOTS)
            total += freq
            known = abs(token - MIDDLE) <= FARTHEST or token == LITERAL
            if freq < 0 or total > SLOTS or (freq and not known):
                return None
            row[token] = freq
        if total != SLOTS:
            return None
    return tables
