"""Frequency tables: cells with similar tokens share one, because a table costs bits in the block and cache to decode.

Which cells share is found greedily, with the estimates of :mod:`maskreg.codec.costs`:

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
from maskreg.codec.costs import INDEX_BITS, LOGS, TOKEN_BITS, Costs, Counts, bits_of
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, MIDDLE
from maskreg.native import library

MAX_TABLES = 32
"""32 decoding tables take 512 KiB, which fits a core's second-level cache."""

_RARE = 40_000
"""A token rarer than one in this many has no slot and becomes a literal: the slot would cost the others more."""


_SPARE_PAIRS = 64
"""Pairs of cells for which the kernel has room beyond those there are."""


@dataclass(frozen=True)
class Tables:
    """Frequency tables, and which cells use them.

    Attributes:
        of_cell: uint8 ``[cells]``, the table of each cell.
        freqs: uint16 ``[tables, 64]``; each row sums to 4,096.
    """

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
    """Groups of cells, and the bits of all.

    Args:
        counts: int64 ``[cells, 64]``; replaced by those of the groups.
        wide: size classes per exponent class: cells k and k + wide are neighbors.
        limit: most groups.
    """
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

    Args:
        counts: int64 ``[cells, 64]``, tokens by cell; they sum to less than 2^40. At most 256 cells.
        wide: size classes per exponent class: cells k and k + wide are neighbors.
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
