"""Range asymmetric numeral systems (rANS): tokens to 16-bit words and back, in 16 lanes.

Source: J. Duda, "Asymmetric numeral systems" (arXiv:1311.2540), range variant, with a 32-bit state that is refilled by
16-bit words. It comes as close to the entropy as arithmetic coding, and decoding a token takes one table lookup and one
multiplication.

A table gives each token a frequency f out of 4,096; its *slots* are f consecutive numbers from g on. A state x holds
everything that was coded so far as one number. Coding a token makes it 4,096 / f times as large, that is, longer by the
token's log2(4096 / f) bits:

    encode:  x = 4096 * (x // f) + g + x % f            decode:  q = x % 4096; the token is the one that has slot q
                                                                 x = f * (x // 4096) + q - g

Decoding is the exact inverse and yields the tokens last to first, so the encoder goes through them backwards. To stay
within 32 bits the encoder puts out the low 16 bits of x when the result would not fit (``x >= f * 2^20``), and the
decoder takes them back when x falls below 2^16. Both conditions hold for the same tokens, because x is in
[2^16, 2^32) before and after each of them.

Three tokens, A B A, one lane. f = 3072, g = 0 for A; f = 1024, g = 3072 for B:

    encode A   x = 65536 = 21 * 3072 + 1024        ->  4096 * 21 + 0 + 1024    =  87040
    encode B   x = 87040 = 85 * 1024 + 0           ->  4096 * 85 + 3072 + 0    = 351232
    encode A   x = 351232 = 114 * 3072 + 1024      ->  4096 * 114 + 0 + 1024   = 467968    stored as the state
    decode     467968 % 4096 = 1024, a slot of A   ->  3072 * 114 + 1024 - 0   = 351232
               351232 % 4096 = 3072, a slot of B   ->  1024 * 85 + 3072 - 3072 =  87040
               87040 % 4096 = 1024, a slot of A    ->  3072 * 21 + 1024 - 0    =  65536    what it began with

The state grew from 65,536 to 467,968, by 2.84 bits; the tokens' entropy is 2 * 0.415 + 2 = 2.83. After some 16 bits a
word falls due: with f = 1024, a state of 2^30 or more gives its low 16 bits away first.

*Lanes*: each token depends on the state before it, so one coder leaves a processor idle most of the time. 16 coders
take turns (token i belongs to lane i mod 16) and share one stream of words; they are independent, so vectors advance 8
of them at once and a GPU all. The words come in the order in which the decoder takes them.

That every lane ends at 2^16 exactly, with no word left over, is also a check of the stream.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.ulp_steps import LITERAL
from maskreg.native import library

LANES = 16
"""Coders of a sub-block, which take turns."""

TABLE_BITS = 12
SLOTS = 1 << TABLE_BITS
"""The frequencies of a table sum to this."""

TOKENS = 64
"""Size of the alphabet."""

LOWEST_STATE = 1 << 16
"""A lane's state before the first token is coded and after the last is decoded; between tokens it is no smaller."""

_MASK = np.uint32(SLOTS - 1)
_BITS = np.uint32(TABLE_BITS)
_LOW = np.uint32(LOWEST_STATE)
_WORD = np.uint32(16)
_ABOVE = np.uint32(32 - TABLE_BITS)

# An entry of a decoding table: token in 7 bits, q - g in 12, frequency in 13 (it may be 4,096). One load has all three.
SLOT_SHIFT, FREQ_SHIFT = 7, 19
_TOKEN_MASK = np.uint32(0x7F)
_SLOT_SHIFT, _FREQ_SHIFT = np.uint32(SLOT_SHIFT), np.uint32(FREQ_SHIFT)

Words = npt.NDArray[np.uint16]
States = npt.NDArray[np.uint32]
Table = npt.NDArray[np.uint32]


class Decoding(NamedTuple):
    """What the decoder of several spans reads and writes, a row each.

    Attributes:
        words: uint16 ``[k, m]``, one more than the longest span has tokens.
        tables: uint8 ``[k, n]``, the table of each coordinate.
        entries: uint32 ``[tables * 4096]``, of :func:`fill_decoding`.
        states: uint32 ``[k, 16]``, of the lanes; replaced by those after the last token.
        tokens: uint8 ``[k, n]``, filled.
        lengths: int64 ``[k]``, tokens of each span.
    """

    words: Words
    tables: npt.NDArray[np.uint8]
    entries: Table
    states: States
    tokens: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int64]


class Encoding(NamedTuple):
    """What the encoder of several spans reads and writes, a row each.

    Attributes:
        keys: uint16 ``[n]``, of one span after the other: cell << 6 | token. A token that its cell's table lacks is
            replaced by a literal.
        length: tokens of each span but the last, which has the rest, and no more than that.
        slots: uint32, by key; of :func:`slots_of`.
        states: uint32 ``[k, 16]``, of the lanes; replaced by those that decoding begins with.
        words: uint16 ``[k, m]``, filled from the end; at least as many as the longest span has tokens.
    """

    keys: npt.NDArray[np.uint16]
    length: int
    slots: Table
    states: States
    words: Words


def fill_decoding(freqs: npt.NDArray[np.uint16], entries: Table) -> None:
    """Fill decoding tables, ``[tables * 4096]``, from frequencies, ``[tables, 64]``, whose rows sum to 4,096."""
    if compiled := library():
        compiled.lib.maskreg_fill_decoding(compiled.read(freqs), len(freqs), compiled.write(entries))
        return
    sizes = freqs.reshape(-1).astype(np.uint32)
    first = np.cumsum(sizes, dtype=np.uint32) - sizes
    entry = sizes << _FREQ_SHIFT | np.tile(np.arange(TOKENS, dtype=np.uint32), len(freqs))
    slots = np.arange(entries.size, dtype=np.uint32) - np.repeat(first, sizes)
    entries[:] = np.repeat(entry, sizes) | slots << _SLOT_SHIFT


def decode_tokens(decoding: Decoding) -> npt.NDArray[np.int64]:
    """Decode the tokens of several spans, as NumPy computes it; returns how many words each took, int64 ``[k]``.

    The kernel's loops are in native/src/lanes.h.
    """
    words, tables, entries, states, tokens, lengths = decoding
    count, n = tokens.shape
    first_entries = _turns(tables.astype(np.uint32) << _BITS, 0)
    # The last turn of a span may not reach all lanes.
    live = _turns(np.arange(n) < lengths[:, None], False)
    # Where each span's next word is, among all words.
    begin: npt.NDArray[np.int64] = words.shape[1] * np.arange(count)
    place = begin.copy()
    read = np.empty_like(first_entries)
    for turn, first in enumerate(first_entries):
        entry = entries[first | states & _MASK]
        state = (entry >> _FREQ_SHIFT) * (states >> _BITS) + (entry >> _SLOT_SHIFT & _MASK)
        due = live[turn] & (state < _LOW)
        # The next words of a span go to its lanes that are due, in order.
        taken = due.cumsum(axis=1)
        refilled = state << _WORD | words.take(place[:, None] + taken - due, mode="clip")
        np.copyto(states, np.where(due, refilled, state), where=live[turn])
        place += taken[:, -1]
        read[turn] = entry
    spans = np.where(live, read & _TOKEN_MASK, 0).swapaxes(0, 1).reshape(count, -1)
    tokens[:] = spans[:, :n]
    return place - begin


def _turns(spans: npt.NDArray[Any], filling: int) -> npt.NDArray[Any]:
    """What the lanes of all spans, ``[k, n]``, take in each turn: ``[turns, k, 16]``."""
    count, n = spans.shape
    turns = -(-n // LANES)
    filled = np.full((count, turns * LANES), filling, spans.dtype)
    filled[:, :n] = spans
    return np.ascontiguousarray(filled.reshape(count, turns, LANES).swapaxes(0, 1))


def slots_of(freqs: npt.NDArray[np.uint16], of_cell: npt.NDArray[np.uint8]) -> Table:
    """Encoding tables, uint32 ``[cells * 64]``: a token's first slot << 16 | its frequency; 0 for tokens with none."""
    if compiled := library():
        slots = np.empty(of_cell.size * TOKENS, np.uint32)
        compiled.lib.maskreg_fill_slots(
            compiled.read(freqs), compiled.read(of_cell), of_cell.size, compiled.write(slots)
        )
        return slots
    sizes = freqs.astype(np.uint32)
    firsts = np.cumsum(sizes, axis=1, dtype=np.uint32) - sizes
    return np.where(sizes, firsts << np.uint32(16) | sizes, np.uint32(0))[of_cell].reshape(-1)


def encode_tokens(encoding: Encoding) -> npt.NDArray[np.int64]:
    """Code the tokens of several spans, last to first, as NumPy computes it; where in its row each span's words begin.

    The kernel's loops are in native/src/encode.c.
    """
    keys, length, slots, states, words = encoding
    keys[slots[keys] == 0] |= LITERAL
    # A token with all slots leaves a state as it is: lanes that a span does not reach get that.
    spans = np.full((len(states), min(length, keys.size)), SLOTS, np.uint32)
    spans.reshape(-1)[: keys.size] = slots[keys]
    slot = _turns(spans, SLOTS)
    firsts, freqs = slot >> _WORD, slot & np.uint32(0xFFFF)
    others = np.uint32(SLOTS) - freqs
    before, due = np.empty_like(slot), np.empty(slot.shape, np.bool_)
    for turn in range(len(slot) - 1, -1, -1):
        before[turn] = states
        due[turn] = states >> _ABOVE >= freqs[turn]
        state = np.where(due[turn], states >> _WORD, states)
        # 4096 * quotient + rest, where the rest is the state without freq * quotient.
        states[:] = state // freqs[turn] * others[turn] + state + firsts[turn]
    given = [before[:, k][due[:, k]].astype(np.uint16) for k in range(len(states))]
    # The decoder reads them turn by turn, and within a turn lane by lane.
    for row, own in zip(words, given, strict=True):
        row[row.size - own.size :] = own
    return np.array([words.shape[1] - own.size for own in given], np.int64)
