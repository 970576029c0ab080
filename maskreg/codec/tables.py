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

Neighbors come first because they are few and nearly always the best: of 256 cells, 906 pairs instead of 32,640.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import get_bits, get_gamma, put_bits, put_gamma
from maskreg.codec.costs import INDEX_BITS, TOKEN_BITS, bits_of, extent_of
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.ulp_steps import FARTHEST, LITERAL, MIDDLE
from maskreg.jit import kernel

MAX_TABLES = 32
"""32 decoding tables take 512 KiB, which fits a core's second-level cache."""

_RARE = 40_000
"""A token rarer than one in this many has no slot and becomes a literal: the slot would cost the others more."""

Counts = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tables:
    """Frequency tables, and which cells use them.

    Attributes:
        of_cell: uint8 ``[cells]``, the table of each cell.
        freqs: uint16 ``[tables, 64]``; each row sums to 4,096.
    """

    of_cell: npt.NDArray[np.uint8]
    freqs: npt.NDArray[np.uint16]


class _Groups(NamedTuple):
    """Groups of cells; group k is known by its first cell, and gone when its total is 0.

    Attributes:
        counts: int64 ``[cells, 64]``, tokens of each group.
        extents: int64 ``[cells, 3]``: first token, last token, total.
        bits: float64 ``[cells]``, of its tokens and table.
    """

    counts: Counts
    extents: Counts
    bits: npt.NDArray[np.float64]


class _Pairs(NamedTuple):
    """Pairs of groups that may be merged, and the bits lost by that."""

    left: Counts
    right: Counts
    loss: npt.NDArray[np.float64]


@kernel
def _loss(groups: _Groups, left: int, right: int, scratch: Counts) -> float:
    """Bits lost when two groups are merged."""
    counts, extents, bits = groups
    first, last = min(extents[left, 0], extents[right, 0]), max(extents[left, 1], extents[right, 1])
    for token in range(first, last + 1):
        scratch[token] = counts[left, token] + counts[right, token]
    return float(bits_of(scratch, first, last, extents[left, 2] + extents[right, 2]) - bits[left] - bits[right])


@kernel
def _list_pairs(groups: _Groups, wide: int, near: bool, pairs: _Pairs) -> tuple[int, int]:
    """List pairs of groups, neighbors alone or all; returns how many, and which has the lowest loss."""
    scratch = np.empty(groups.counts.shape[1], np.int64)
    size = groups.bits.size
    listed, best = 0, 0
    for left in range(size):
        if not groups.extents[left, 2]:
            continue
        for right in range(left + 1, min(size, left + wide + 2) if near else size):
            apart = abs(left // wide - right // wide) > 1 or abs(left % wide - right % wide) > 1
            if groups.extents[right, 2] and not (near and apart):
                pairs.left[listed], pairs.right[listed] = left, right
                pairs.loss[listed] = _loss(groups, left, right, scratch)
                if pairs.loss[listed] < pairs.loss[best]:
                    best = listed
                listed += 1
    return listed, best


@kernel
def _unite(groups: _Groups, left: int, right: int, loss: float) -> None:
    """Merge group ``right`` into group ``left``."""
    counts, extents, bits = groups
    for token in range(counts.shape[1]):
        counts[left, token] += counts[right, token]
    bits[left], bits[right] = bits[left] + bits[right] + loss, 0
    extents[left, 0] = min(extents[left, 0], extents[right, 0])
    extents[left, 1] = max(extents[left, 1], extents[right, 1])
    extents[left, 2], extents[right, 2] = extents[left, 2] + extents[right, 2], 0


@kernel
def _renew(groups: _Groups, left: int, right: int, pairs: _Pairs, listed: int) -> tuple[int, int]:
    """Update the list after ``right`` was merged into ``left``; returns how many pairs, and which has the lowest loss.

    Pairs with either become pairs with ``left``, once per partner; the list is compacted in place.
    """
    scratch = np.empty(groups.counts.shape[1], np.int64)
    done = np.zeros(groups.bits.size, np.bool_)
    done[left] = done[right] = True
    kept, best = 0, 0
    for pair in range(listed):
        a, b, loss = pairs.left[pair], pairs.right[pair], pairs.loss[pair]
        a_changed = a in (left, right)
        if a_changed or b in (left, right):
            partner = b if a_changed else a
            if done[partner]:
                continue
            done[partner] = True
            a, b = left, partner
            loss = _loss(groups, left, partner, scratch)
        pairs.left[kept], pairs.right[kept], pairs.loss[kept] = a, b, loss
        if loss < pairs.loss[best]:
            best = kept
        kept += 1
    return kept, best


@kernel
def _merge(counts: Counts, wide: int, limit: int) -> tuple[npt.NDArray[np.int64], float]:
    """Assign cells to groups; returns the group of each cell (-1 when it never occurs) and the bits of all.

    Args:
        counts: int64 ``[cells, 64]``; replaced by those of the groups.
        wide: size classes per exponent class: cells k and k + wide are neighbors.
        limit: most groups.
    """
    cells = counts.shape[0]
    group = np.full(cells, -1, np.int64)
    groups = _Groups(counts, np.zeros((cells, 3), np.int64), np.zeros(cells))
    used = 0
    for cell in range(cells):
        extent_of(counts[cell], groups.extents[cell])
        first, last, total = groups.extents[cell]
        groups.bits[cell] = bits_of(counts[cell], first, last, total)
        if total:
            group[cell] = cell
            used += 1
    most = used * (used - 1) // 2 + 1
    pairs = _Pairs(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most))
    for stage in range(2):
        listed, best = _list_pairs(groups, wide, stage == 0, pairs)
        # Merging at a loss, to get down to the limit, waits until all pairs compete.
        while listed and (pairs.loss[best] < 0 or (stage == 1 and used > limit)):
            left, right = pairs.left[best], pairs.right[best]
            _unite(groups, left, right, pairs.loss[best])
            used -= 1
            for cell in range(cells):
                if group[cell] == right:
                    group[cell] = left
            listed, best = _renew(groups, left, right, pairs, listed)
    return group, groups.bits.sum()


@kernel
def _normalize(counts: Counts, freqs: npt.NDArray[np.uint16]) -> None:
    """Frequencies that sum to 4,096, at least 1 for every token that occurs, but for the rarest.

        tokens that are too rare become literals
        freq = count * 4096 / total, rounded, at least 1
        what is missing to 4,096 goes to the most frequent; what is too much is taken from it, by ones, as long as it
        is the most frequent: a slot more or less changes its cost least

    counts 9,000, 990, 9, 1: freqs 3,686, 406, 4, 1 sum to 4,097; the first becomes 3,685.
    """
    total = 0
    for count in counts:
        total += count
    kept = counts.copy()
    for token in range(counts.size):
        if token != MIDDLE and token != LITERAL and counts[token] * _RARE < total:
            kept[LITERAL] += kept[token]
            kept[token] = 0
    left = SLOTS
    most = 0
    for token in range(counts.size):
        if kept[token]:
            # count * 4096 / total, rounded to the nearest
            freq = max(1, (2 * SLOTS * kept[token] + total) // (2 * total))
            freqs[token] = np.uint16(freq)
            left -= freq
            if freqs[token] > freqs[most] or not freqs[most]:
                most = token
    while left < 0:
        for token in range(counts.size):
            if freqs[token] > freqs[most]:
                most = token
        freqs[most] -= np.uint16(1)
        left += 1
    freqs[most] += np.uint16(left)


def build_tables(counts: Counts, wide: int) -> tuple[Tables, float]:
    """Tables for cells, and the bits that tokens and tables take together (without extra bits).

    Args:
        counts: int64 ``[cells, 64]``, tokens by cell.
        wide: size classes per exponent class: cells k and k + wide are neighbors.
    """
    of_cell, freqs = np.zeros(len(counts), np.uint8), np.zeros((MAX_TABLES, counts.shape[1]), np.uint16)
    used, bits = _build(counts.copy(), wide, of_cell, freqs)
    return Tables(of_cell, freqs[:used]), bits


@kernel
def _build(
    counts: Counts, wide: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]
) -> tuple[int, float]:
    """Fill the tables; returns how many there are, and the bits of all. ``counts`` become those of groups."""
    group, bits = _merge(counts, wide, MAX_TABLES)
    used, numbers = 0, np.zeros(group.size, np.uint8)
    for cell in range(group.size):
        if group[cell] == cell:
            _normalize(counts[cell], freqs[used])
            numbers[cell] = used
            used += 1
    before = np.uint8(0)
    for cell in range(group.size):
        # A cell that never occurs repeats the table before it, which costs one bit.
        if group[cell] >= 0:
            before = numbers[group[cell]]
        of_cell[cell] = before
    return used, bits


@kernel
def _pack(bits: Bits, at: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]) -> int:
    # Per cell: 1 when it has the table of the cell before, else 0 and the table's number in 5 bits. Per table: its
    # first and last token in 6 bits each, then a gamma code per frequency. FORMAT.md section 5.2.
    before = 0
    for table in of_cell:
        at = put_bits(bits, at, int(table == before), 1)
        if table != before:
            at = put_bits(bits, at, int(table), INDEX_BITS)
        before = int(table)
    for row in range(freqs.shape[0]):
        first, last = -1, 0
        for token in range(freqs.shape[1]):
            if freqs[row, token]:
                last = token
                if first < 0:
                    first = token
        at = put_bits(bits, at, first, TOKEN_BITS)
        at = put_bits(bits, at, last, TOKEN_BITS)
        for token in range(first, last + 1):
            at = put_gamma(bits, at, int(freqs[row, token]))
    return at


def pack_tables(bits: Bits, at: int, tables: Tables) -> int:
    """Write tables at bit ``at``; returns the bit after them."""
    return _pack(bits, at, tables.of_cell, tables.freqs)


@kernel
def _unpack(bits: Bits, at: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]) -> int:
    before = 0
    for cell in range(of_cell.size):
        same = get_bits(bits, at, 1)
        at += 1
        if not same:
            before = get_bits(bits, at, INDEX_BITS)
            at += INDEX_BITS
        if before >= freqs.shape[0]:
            return -1
        of_cell[cell] = np.uint8(before)
    for row in range(freqs.shape[0]):
        first, last = get_bits(bits, at, TOKEN_BITS), get_bits(bits, at + TOKEN_BITS, TOKEN_BITS)
        at += 2 * TOKEN_BITS
        total = 0
        for token in range(first, last + 1):
            freq, at = get_gamma(bits, at, SLOTS)
            total += freq
            known = abs(token - MIDDLE) <= FARTHEST or token == LITERAL
            if freq < 0 or total > SLOTS or (freq and not known):
                return -1
            freqs[row, token] = np.uint16(freq)
        if total != SLOTS:
            return -1
    return at


def unpack_tables(bits: Bits, at: int, cells: int, count: int) -> tuple[Tables, int] | None:
    """Tables at bit ``at`` and the bit after them; None when they are invalid."""
    tables = Tables(np.zeros(cells, np.uint8), np.zeros((count, TOKENS), np.uint16))
    at = _unpack(bits, at, tables.of_cell, tables.freqs)
    return None if at < 0 else (tables, at)
