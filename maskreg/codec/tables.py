"""Frequency tables: cells that behave alike share one, because a table costs bits and cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import get_bits, get_gamma, put_bits, put_gamma
from maskreg.codec.costs import INDEX_BITS, TOKEN_BITS, bits_of, span_of
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.steps import FARTHEST, LITERAL, MIDDLE
from maskreg.jit import kernel

MAX_TABLES = 32
"""32 decoding tables are 512 KiB: no more than a core's second cache."""

_RARE = 40_000
"""A token that is rarer than one in this many is given whole: its slot would cost the others more."""

Counts = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Tables:
    """Frequency tables and who uses them.

    Attributes:
        of_cell: uint8 ``[cells]``, the table of each cell.
        freqs: uint16 ``[tables, 64]``; each row sums to 4,096.
    """

    of_cell: npt.NDArray[np.uint8]
    freqs: npt.NDArray[np.uint16]

    def starts(self, entries: int) -> npt.NDArray[np.uint32]:
        """uint32 ``[256]``: where the table of each cell begins among tables of ``entries`` entries."""
        starts = np.zeros(256, np.uint32)
        starts[: len(self.of_cell)] = self.of_cell.astype(np.uint32) * np.uint32(entries)
        return starts


@kernel
def _bits_of_both(counts: Counts, spans: Counts, one: int, other: int, both: Counts) -> float:
    """Bits when two groups are one; ``both`` is room to work in."""
    first, last = min(spans[one, 0], spans[other, 0]), max(spans[one, 1], spans[other, 1])
    for token in range(first, last + 1):
        both[token] = counts[one, token] + counts[other, token]
    return bits_of(both, first, last, spans[one, 2] + spans[other, 2])


class _Pairs(NamedTuple):
    """Pairs of groups on offer, each with the bits lost when they are one."""

    left: Counts
    right: Counts
    loss: npt.NDArray[np.float64]


@kernel
def _offer(
    counts: Counts, spans: Counts, bits: npt.NDArray[np.float64], wide: int, near: bool, pairs: _Pairs
) -> tuple[int, int]:
    """List pairs of groups, neighbors alone or all; how many, and the best of them."""
    both = np.empty(counts.shape[1], np.int64)
    listed, best = 0, 0
    for one in range(bits.size):
        if not spans[one, 2]:
            continue
        for other in range(one + 1, min(bits.size, one + wide + 2) if near else bits.size):
            apart = abs(one // wide - other // wide) > 1 or abs(one % wide - other % wide) > 1
            if spans[other, 2] and not (near and apart):
                pairs.left[listed], pairs.right[listed] = one, other
                pairs.loss[listed] = _bits_of_both(counts, spans, one, other, both) - bits[one] - bits[other]
                if pairs.loss[listed] < pairs.loss[best]:
                    best = listed
                listed += 1
    return listed, best


@kernel
def _unite(counts: Counts, spans: Counts, bits: npt.NDArray[np.float64], one: int, other: int, loss: float) -> None:
    """Add group ``other`` to group ``one``."""
    for token in range(counts.shape[1]):
        counts[one, token] += counts[other, token]
    bits[one], bits[other] = bits[one] + bits[other] + loss, 0
    spans[one, 0], spans[one, 1] = min(spans[one, 0], spans[other, 0]), max(spans[one, 1], spans[other, 1])
    spans[one, 2], spans[other, 2] = spans[one, 2] + spans[other, 2], 0


@kernel
def _renew(
    counts: Counts, spans: Counts, bits: npt.NDArray[np.float64], one: int, other: int, pairs: _Pairs, listed: int
) -> tuple[int, int]:
    """Pairs after group ``other`` was added to group ``one``; how many, and the best of them."""
    both = np.empty(counts.shape[1], np.int64)
    met = np.zeros(bits.size, np.bool_)
    met[one] = met[other] = True
    kept, best = 0, 0
    for pair in range(listed):
        a, b, lost = pairs.left[pair], pairs.right[pair], pairs.loss[pair]
        of_left = a in (one, other)
        if of_left or b in (one, other):
            third = b if of_left else a
            if met[third]:
                continue
            met[third] = True
            a, b = one, third
            lost = _bits_of_both(counts, spans, one, third, both) - bits[one] - bits[third]
        pairs.left[kept], pairs.right[kept], pairs.loss[kept] = a, b, lost
        if lost < pairs.loss[best]:
            best = kept
        kept += 1
    return kept, best


@kernel
def _merge(counts: Counts, wide: int, limit: int) -> tuple[npt.NDArray[np.int64], float]:
    """Give each cell a group: neighbors first, then all; the groups' numbers and the bits of all.

    Args:
        counts: int64 ``[cells, 64]``; replaced by those of the groups.
        wide: cells in a row of the grid of cells.
        limit: groups at most.
    """
    cells = counts.shape[0]
    group = np.full(cells, -1, np.int64)
    bits, spans = np.zeros(cells), np.zeros((cells, 3), np.int64)
    used = 0
    for cell in range(cells):
        span_of(counts[cell], spans[cell])
        first, last, total = spans[cell]
        bits[cell] = bits_of(counts[cell], first, last, total)
        if total:
            group[cell] = cell
            used += 1
    most = used * (used - 1) // 2 + 1
    pairs = _Pairs(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most))
    for stage in range(2):
        listed, best = _offer(counts, spans, bits, wide, stage == 0, pairs)
        # Too many groups are merged at a loss, but not before all pairs are on offer.
        while listed and (pairs.loss[best] < 0 or (stage == 1 and used > limit)):
            one, other = pairs.left[best], pairs.right[best]
            _unite(counts, spans, bits, one, other, pairs.loss[best])
            used -= 1
            for cell in range(cells):
                if group[cell] == other:
                    group[cell] = one
            listed, best = _renew(counts, spans, bits, one, other, pairs, listed)
    return group, bits.sum()


@kernel
def _normalize(counts: Counts, freqs: npt.NDArray[np.uint16]) -> None:
    """Frequencies that sum to 4,096, for every token that is not too rare."""
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
            freq = max(1, (2 * SLOTS * kept[token] + total) // (2 * total))
            freqs[token] = np.uint16(freq)
            left -= freq
            if freqs[token] > freqs[most] or not freqs[most]:
                most = token
    while left < 0:
        # One each from the largest: they notice least.
        for token in range(counts.size):
            if freqs[token] > freqs[most]:
                most = token
        freqs[most] -= np.uint16(1)
        left += 1
    freqs[most] += np.uint16(left)


def build_tables(counts: Counts, wide: int) -> tuple[Tables, float]:
    """Tables for cells, and the bits that tokens and tables take together (without extra bits of far steps).

    Args:
        counts: int64 ``[cells, 64]``, tokens by cell.
        wide: cells in a row of the grid of cells: neighbors are alike.
    """
    of_cell, freqs = np.zeros(len(counts), np.uint8), np.zeros((MAX_TABLES, counts.shape[1]), np.uint16)
    used, bits = _build(counts.copy(), wide, of_cell, freqs)
    return Tables(of_cell, freqs[:used]), bits


@kernel
def _build(
    counts: Counts, wide: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]
) -> tuple[int, float]:
    """Fill the tables and say how many there are, and the bits of all; counts become those of groups."""
    group, bits = _merge(counts, wide, MAX_TABLES)
    used, numbers = 0, np.zeros(group.size, np.uint8)
    for cell in range(group.size):
        if group[cell] == cell:
            _normalize(counts[cell], freqs[used])
            numbers[cell] = used
            used += 1
    before = np.uint8(0)
    for cell in range(group.size):
        # An empty cell repeats the table before it, which costs one bit.
        if group[cell] >= 0:
            before = numbers[group[cell]]
        of_cell[cell] = before
    return used, bits


@kernel
def _pack(bits: Bits, at: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]) -> int:
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
    """Write tables at bit ``at``, and return the place after them."""
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
    """Tables at bit ``at`` and the place after them; None when they are not tables."""
    tables = Tables(np.zeros(cells, np.uint8), np.zeros((count, TOKENS), np.uint16))
    at = _unpack(bits, at, tables.of_cell, tables.freqs)
    return None if at < 0 else (tables, at)
