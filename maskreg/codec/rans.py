"""Range asymmetric numeral systems: tokens to 16-bit words and back, sixteen lanes at a time.

Source of the method: J. Duda, "Asymmetric numeral systems" (arXiv:1311.2540), its range variant, with a 32-bit state
that gives and takes 16-bit words. Token ``i`` of a run belongs to lane ``i mod 16``; the lanes share a stream of words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.steps import LITERAL
from maskreg.jit import kernel

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


def spans_of(freqs: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint32]:
    """Encoding tables, uint32 ``[tables, 64]``: a token's first slot << 16 | its frequency, and 0 where it has none.

    Args:
        freqs: uint16 ``[tables, 64]``, each row sums to 4,096.
    """
    sizes = freqs.astype(np.uint32)
    firsts = np.cumsum(sizes, axis=1, dtype=np.uint32) - sizes
    return np.where(sizes, firsts << np.uint32(16) | sizes, np.uint32(0))


@kernel
def encode_tokens(
    keys: npt.NDArray[np.uint16],
    begin: int,
    end: int,
    spans: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint16],
    place: int,
) -> int:
    """Code tokens ``[begin, end)``, last to first and lane by lane, and return where their words begin.

    Args:
        keys: uint16, at least ``end``: cell << 6 | token. A token that its cell's table lacks is replaced by a literal.
        begin: the first.
        end: one past the last.
        spans: uint32, by key; of :func:`spans_of`.
        states: uint32 ``[16]``, of the lanes; replaced by those that decoding these tokens begins with.
        words: uint16, at least a word for each token, and one more, before ``place``; filled from there down.
        place: where the words of the tokens after these begin.
    """
    for back in range(end - begin):
        i = end - 1 - back
        span = np.int64(spans[keys[i]])
        if span == 0:
            keys[i] |= np.uint16(LITERAL)
            span = np.int64(spans[keys[i]])
        freq, state = span & 0xFFFF, np.int64(states[i & (LANES - 1)])
        # Without a branch, as in decoding: the word is written in any case and counts when it is due.
        due = state >> (32 - TABLE_BITS) >= freq
        words[place - 1] = np.uint16(state & 0xFFFF)
        place -= int(due)
        state = state >> 16 if due else state
        states[i & (LANES - 1)] = np.uint32((state // freq << TABLE_BITS) + state % freq + (span >> 16))
    return place
