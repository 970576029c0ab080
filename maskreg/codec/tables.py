"""Frequency tables: cells that behave alike share one, because a table costs bits and cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import get_bits, get_gamma, put_bits, put_gamma
from maskreg.codec.rans import SLOTS, TOKENS
from maskreg.codec.steps import FARTHEST, LITERAL, MIDDLE
from maskreg.jit import kernel

MAX_TABLES = 32
"""32 decoding tables are 512 KiB: no more than a core's second cache."""

_TOKEN_BITS = 6
_INDEX_BITS = 5

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


_GAMMA_BITS = np.array([2 * (freq + 1).bit_length() - 1 for freq in range(SLOTS + 1)], np.int64)

_LOG_STEPS = 1 << 12


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


_LOGS = _logarithms()
"""A line between two of them is within 1e-8."""


@kernel
def _log2(count: int) -> float:
    """The logarithm of ``count >= 1``, several times as fast as the library's."""
    whole = 0
    while count >> (whole + 1):
        whole += 1
    place = (count - (1 << whole)) / (1 << whole) * _LOG_STEPS
    step = int(place)
    return float(whole + _LOGS[step] + (place - step) * (_LOGS[step + 1] - _LOGS[step]))


@kernel
def _bits_of(counts: Counts) -> float:
    """Bits of the tokens counted, and of a table for them."""
    total, first, last = 0, -1, 0
    for token in range(counts.size):
        if counts[token]:
            total += counts[token]
            last = token
            if first < 0:
                first = token
    if total == 0:
        return 0.0
    bits = total * _log2(total) + (2 * _TOKEN_BITS + _INDEX_BITS)
    for token in range(first, last + 1):
        count = counts[token]
        if count:
            bits += _GAMMA_BITS[max(1, count * SLOTS // total)] - count * _log2(count)
        else:
            bits += 1
    return bits


@kernel
def _merge(counts: Counts, wide: int, limit: int) -> tuple[npt.NDArray[np.int64], float]:
    """Give each cell a group: neighbours first, then all; the groups' numbers and the bits of all.

    Args:
        counts: int64 ``[cells, 64]``; replaced by those of the groups.
        wide: cells in a row of the grid of cells.
        limit: groups at most.
    """
    cells = counts.shape[0]
    group = np.full(cells, -1, np.int64)
    bits = np.zeros(cells)
    used = 0
    for cell in range(cells):
        bits[cell] = _bits_of(counts[cell])
        if bits[cell] > 0:
            group[cell] = cell
            used += 1
    both = np.empty(counts.shape[1], np.int64)
    for stage in range(2):
        left, right = np.empty(cells * cells, np.int64), np.empty(cells * cells, np.int64)
        loss = np.empty(cells * cells)
        listed = np.zeros((cells, cells), np.bool_)
        pairs = 0
        for one in range(cells):
            for other in range(one + 1, cells):
                near = abs(one // wide - other // wide) <= 1 and abs(one % wide - other % wide) <= 1
                if group[one] == one and group[other] == other and (near or stage == 1):
                    left[pairs], right[pairs] = one, other
                    both[:] = counts[one] + counts[other]
                    loss[pairs] = _bits_of(both) - bits[one] - bits[other]
                    pairs += 1
        while pairs:
            best = 0
            for pair in range(pairs):
                if loss[pair] < loss[best]:
                    best = pair
            # Too many groups are merged at a loss, but not before all pairs are on offer.
            if loss[best] >= 0 and (stage == 0 or used <= limit):
                break
            one, other = left[best], right[best]
            counts[one] += counts[other]
            bits[one], bits[other] = bits[one] + bits[other] + loss[best], 0
            used -= 1
            for cell in range(cells):
                if group[cell] == other:
                    group[cell] = one
            listed[one, :] = False
            kept = 0
            for pair in range(pairs):
                a, b, lost = left[pair], right[pair], loss[pair]
                if a in (one, other) or b in (one, other):
                    third = b if a in (one, other) else a
                    if third in (one, other) or listed[one, third]:
                        continue
                    listed[one, third] = True
                    a, b = one, third
                    both[:] = counts[one] + counts[third]
                    lost = _bits_of(both) - bits[one] - bits[third]
                left[kept], right[kept], loss[kept] = a, b, lost
                kept += 1
            pairs = kept
    return group, bits.sum()


@kernel
def _normalise(counts: Counts, freqs: npt.NDArray[np.uint16]) -> None:
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


@kernel
def tables_bits(counts: Counts) -> float:
    """About what :func:`build_tables` comes to, in a fraction of the time: when each cell has its own table."""
    bits = 0.0
    for cell in range(counts.shape[0]):
        bits += _bits_of(counts[cell])
    return bits


def build_tables(counts: Counts, wide: int) -> tuple[Tables, float]:
    """Tables for cells, and the bits that tokens and tables take together (without extra bits of far steps).

    Args:
        counts: int64 ``[cells, 64]``, tokens by cell.
        wide: cells in a row of the grid of cells: neighbours are alike.
    """
    merged = counts.copy()
    group, bits = _merge(merged, wide, MAX_TABLES)
    kept = np.unique(group[group >= 0])
    freqs = np.zeros((len(kept), TOKENS), np.uint16)
    for row, cell in enumerate(kept):
        _normalise(merged[cell], freqs[row])
    # An empty cell repeats the table before it, which costs one bit.
    numbers = np.searchsorted(kept, group)
    last = np.maximum.accumulate(np.where(group >= 0, np.arange(len(group)), -1))
    of_cell = np.where(last >= 0, numbers[last], 0).astype(np.uint8)
    return Tables(of_cell, freqs), bits


@kernel
def _pack(bits: Bits, at: int, of_cell: npt.NDArray[np.uint8], freqs: npt.NDArray[np.uint16]) -> int:
    before = 0
    for table in of_cell:
        at = put_bits(bits, at, int(table == before), 1)
        if table != before:
            at = put_bits(bits, at, int(table), _INDEX_BITS)
        before = int(table)
    for row in range(freqs.shape[0]):
        first, last = -1, 0
        for token in range(freqs.shape[1]):
            if freqs[row, token]:
                last = token
                if first < 0:
                    first = token
        at = put_bits(bits, at, first, _TOKEN_BITS)
        at = put_bits(bits, at, last, _TOKEN_BITS)
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
            before = get_bits(bits, at, _INDEX_BITS)
            at += _INDEX_BITS
        if before >= freqs.shape[0]:
            return -1
        of_cell[cell] = np.uint8(before)
    for row in range(freqs.shape[0]):
        first, last = get_bits(bits, at, _TOKEN_BITS), get_bits(bits, at + _TOKEN_BITS, _TOKEN_BITS)
        at += 2 * _TOKEN_BITS
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
