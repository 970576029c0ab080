"""Range asymmetric numeral systems: tokens to 16-bit words and back, sixteen lanes at a time.

Source of the method: J. Duda, "Asymmetric numeral systems" (arXiv:1311.2540), its range variant, with a 32-bit state
that gives and takes 16-bit words. Token ``i`` of a run belongs to lane ``i mod 16``; the lanes share a stream of words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.codec.jit import kernel

LANES = 16
"""Coders of a sub-block, which take turns."""

TABLE_BITS = 12
SLOTS = 1 << TABLE_BITS
"""Frequencies of a table sum to this."""

TOKENS = 64
"""Size of the alphabet."""

LOWEST_STATE = 1 << 16
"""A lane's state before the first token is coded and after the last is decoded; between tokens it is no smaller."""

_MASK = np.uint32(SLOTS - 1)
_BITS = np.uint32(TABLE_BITS)
_LOW = np.uint32(LOWEST_STATE)
_WORD = np.uint32(16)
_LANES = np.uint64(LANES)
_ONE = np.uint64(1)

# An entry of a decoding table: token in 7 bits, slot within the token in 12, frequency in 13 (it may be 4,096).
SLOT_SHIFT, FREQ_SHIFT = 7, 19
_TOKEN_MASK = np.uint32(0x7F)
_SLOT_SHIFT, _FREQ_SHIFT = np.uint32(SLOT_SHIFT), np.uint32(FREQ_SHIFT)


@kernel
def fill_decoding(freqs: npt.NDArray[np.uint16], table: npt.NDArray[np.uint32]) -> None:
    """Decoding tables.

    Args:
        freqs: uint16 ``[tables, 64]``, each row sums to 4,096.
        table: uint32 ``[tables * 4096]``, filled.
    """
    at = 0
    for row in range(freqs.shape[0]):
        for token in range(freqs.shape[1]):
            freq = int(freqs[row, token])
            entry, slots = np.uint32(freq << FREQ_SHIFT | token), table[at : at + freq]
            for slot in range(slots.size):
                slots[slot] = np.uint32(entry + np.uint32(np.uint32(slot) << _SLOT_SHIFT))
            at += freq


@kernel
def decode_tokens(
    words: npt.NDArray[np.uint16],
    numbers: npt.NDArray[np.uint8],
    table: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    tokens: npt.NDArray[np.uint8],
    begin: int,
    end: int,
    place: int,
) -> int:
    """Decode tokens ``[begin, end)``, lane by lane, and return the place in ``words`` after theirs.

    Args:
        words: uint16, at least ``end - begin + 1`` after ``place``; a token takes one at most.
        numbers: uint8, at least ``end``: the table of each coordinate.
        table: uint32, of :func:`fill_decoding`.
        states: uint32 ``[16]``, of the lanes; replaced by those after the last token.
        tokens: uint8, at least ``end``; filled from ``begin`` on.
        begin: the first, a multiple of 16.
        end: one past the last.
        place: of the first word.
    """
    at = np.uint64(place)
    for i in range(np.uint64(begin), np.uint64(end)):
        lane = i & np.uint64(LANES - 1)
        state = states[lane]
        entry = table[np.uint64(numbers[i]) << np.uint64(TABLE_BITS) | np.uint64(state & _MASK)]
        tokens[i] = np.uint8(entry & _TOKEN_MASK)
        state = np.uint32((entry >> _FREQ_SHIFT) * (state >> _BITS) + ((entry >> _SLOT_SHIFT) & _MASK))
        low = state < _LOW
        # Without a branch: whether a word is due is as good as random.
        refilled = np.uint32(np.uint32(state << _WORD) | np.uint32(words[at]))
        states[lane] = refilled if low else state
        at += np.uint64(low)
    return int(at)


@kernel
def fill_encoding(
    freqs: npt.NDArray[np.uint16], inverse: npt.NDArray[np.float64], ranges: npt.NDArray[np.uint32]
) -> None:
    """Encoding tables.

    Args:
        freqs: uint16 ``[tables, 64]``, each row sums to 4,096.
        inverse: float64 ``[tables * 64]``, filled with 1 / frequency.
        ranges: uint32 ``[tables * 64]``, filled with first slot << 16 | frequency.
    """
    for row in range(freqs.shape[0]):
        start = 0
        for token in range(freqs.shape[1]):
            freq = int(freqs[row, token])
            if freq:
                inverse[row * freqs.shape[1] + token] = 1.0 / freq
            ranges[row * freqs.shape[1] + token] = np.uint32(start << 16 | freq)
            start += freq


@kernel
def _put(
    state: Any,
    i: Any,
    place: Any,
    words: npt.NDArray[np.uint16],
    cells: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.uint32],
    tokens: npt.NDArray[np.uint8],
    inverse: npt.NDArray[np.float64],
    ranges: npt.NDArray[np.uint32],
) -> tuple[Any, Any]:
    """Code token ``i`` onto one lane: its new state, and where the words begin after it."""
    entry = np.uint64(rows[cells[i]]) + np.uint64(tokens[i])
    # Signed, because converting unsigned numbers to floats and back takes several times as long.
    span = np.int64(ranges[entry])
    freq = span & 0xFFFF
    # Without a branch, as in decoding: the word is written in any case and counts when it is due.
    due = state >= freq << (32 - TABLE_BITS)
    words[place - _ONE] = np.uint16(state & 0xFFFF)
    state = state >> 16 if due else state
    # Half a unit keeps the product clear of whole numbers, so rounding cannot reach one.
    quotient = np.int64((np.float64(state) + 0.5) * inverse[entry])
    return (quotient << TABLE_BITS) + (state - quotient * freq) + (span >> 16), place - np.uint64(due)


@kernel
def encode_tokens(
    tokens: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.uint32],
    inverse: npt.NDArray[np.float64],
    ranges: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint16],
) -> int:
    """Code a run's tokens, last to first, and return where the words begin in ``words``.

    Args:
        tokens: uint8 ``[n]``, each of a frequency above 0 in its cell's table.
        cells: uint8 ``[n]``, the cell of each coordinate.
        rows: uint32 ``[256]``, where the table of each cell begins in ``inverse`` and ``ranges``.
        inverse: of :func:`fill_encoding`.
        ranges: likewise.
        states: uint32 ``[16]``, filled with the lanes' states that decoding begins with.
        words: uint16, at least ``n + 1``, filled from the end.
    """
    place = np.uint64(words.size)
    i = np.uint64(tokens.size)
    states[:] = LOWEST_STATE
    # The last tokens go to the first lanes, from the last of those down.
    for lane in range(tokens.size % LANES - 1, -1, -1):
        i -= _ONE
        state, place = _put(np.int64(states[lane]), i, place, words, cells, rows, tokens, inverse, ranges)
        states[lane] = state
    s0, s1, s2, s3 = np.int64(states[0]), np.int64(states[1]), np.int64(states[2]), np.int64(states[3])
    s4, s5, s6, s7 = np.int64(states[4]), np.int64(states[5]), np.int64(states[6]), np.int64(states[7])
    s8, s9, s10, s11 = np.int64(states[8]), np.int64(states[9]), np.int64(states[10]), np.int64(states[11])
    s12, s13, s14, s15 = np.int64(states[12]), np.int64(states[13]), np.int64(states[14]), np.int64(states[15])
    # Written out, so that states need not go through memory.
    while i:
        i -= _LANES
        s15, place = _put(s15, i + np.uint64(15), place, words, cells, rows, tokens, inverse, ranges)
        s14, place = _put(s14, i + np.uint64(14), place, words, cells, rows, tokens, inverse, ranges)
        s13, place = _put(s13, i + np.uint64(13), place, words, cells, rows, tokens, inverse, ranges)
        s12, place = _put(s12, i + np.uint64(12), place, words, cells, rows, tokens, inverse, ranges)
        s11, place = _put(s11, i + np.uint64(11), place, words, cells, rows, tokens, inverse, ranges)
        s10, place = _put(s10, i + np.uint64(10), place, words, cells, rows, tokens, inverse, ranges)
        s9, place = _put(s9, i + np.uint64(9), place, words, cells, rows, tokens, inverse, ranges)
        s8, place = _put(s8, i + np.uint64(8), place, words, cells, rows, tokens, inverse, ranges)
        s7, place = _put(s7, i + np.uint64(7), place, words, cells, rows, tokens, inverse, ranges)
        s6, place = _put(s6, i + np.uint64(6), place, words, cells, rows, tokens, inverse, ranges)
        s5, place = _put(s5, i + np.uint64(5), place, words, cells, rows, tokens, inverse, ranges)
        s4, place = _put(s4, i + np.uint64(4), place, words, cells, rows, tokens, inverse, ranges)
        s3, place = _put(s3, i + np.uint64(3), place, words, cells, rows, tokens, inverse, ranges)
        s2, place = _put(s2, i + np.uint64(2), place, words, cells, rows, tokens, inverse, ranges)
        s1, place = _put(s1, i + np.uint64(1), place, words, cells, rows, tokens, inverse, ranges)
        s0, place = _put(s0, i, place, words, cells, rows, tokens, inverse, ranges)
    states[0], states[1], states[2], states[3] = s0, s1, s2, s3
    states[4], states[5], states[6], states[7] = s4, s5, s6, s7
    states[8], states[9], states[10], states[11] = s8, s9, s10, s11
    states[12], states[13], states[14], states[15] = s12, s13, s14, s15
    return int(place)
