"""Sub-blocks: runs of a block's coordinates that are coded, and decode, on their own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Ints
from maskreg.codec.contexts import TILE, Fields, classify
from maskreg.codec.rans import FREQ_SHIFT, LANES, LOWEST_STATE, SLOT_SHIFT, TABLE_BITS, decode_tokens, encode_tokens
from maskreg.codec.steps import (
    FEWER_BITS,
    LITERAL,
    LITERAL_BITS,
    MIDDLE,
    NEAREST,
    apply_each,
    apply_far,
    apply_steps,
    extra_bits,
    find_far,
)
from maskreg.codec.vector_decode import PERMUTATIONS, look_up_vectors, step_applier, vector_decoder
from maskreg.codec.vector_encode import PACKINGS, vector_encoder
from maskreg.jit import kernel
from maskreg.jit.vector import AVAILABLE

STATE_BYTES = 4 * LANES
"""What a sub-block begins with: the states of its lanes."""

SPARE_BYTES = 8
"""Zeros that follow a block in memory while it is decoded, so that reading ahead stays inside."""


@kernel
def classify_all(
    codes: Codes,
    at: int,
    contexts: Fields,
    tokens: npt.NDArray[np.uint8],
    keys: npt.NDArray[np.uint16],
) -> None:
    """Cells of a whole block, with its tokens turned to their predictions.

    Args:
        codes: uint16 ``[n]``, the source's bits.
        at: column of the first.
        contexts: of the block.
        tokens: uint8 ``[n]``.
        keys: uint16 ``[n]``, filled: cell << 6 | token.
    """
    flips, cells = np.empty(TILE, np.int8), np.empty(TILE, np.uint8)
    predicted = np.empty(TILE, np.int16)
    for start in range(0, codes.size, TILE):
        stop = min(start + TILE, codes.size)
        here, before = keys[start:stop], tokens[start:stop]
        classify(codes[start:stop], at + start, contexts, cells[: stop - start], flips[: stop - start], predicted)
        for i in range(here.size):
            step = np.int8(np.int8(before[i]) - np.int8(MIDDLE))
            token = np.uint8(np.int8(np.int8(step ^ flips[i]) - flips[i]) + np.int8(MIDDLE))
            # A literal has no direction.
            token = np.uint8(LITERAL) if token == np.uint8(2 * MIDDLE - LITERAL) else token
            here[i] = np.uint16(np.uint16(cells[i]) << np.uint16(6)) | np.uint16(token)


@kernel
def _encode_by_lane(  # The vector functions' twin.
    keys: npt.NDArray[np.uint16],
    spans: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint16],
    places: npt.NDArray[np.int64],
    packings: npt.NDArray[np.int32],
    stride: int,
    room: int,
    begin: int,
    end: int,
) -> None:
    for run in range(places.size):
        here = keys[run * stride : run * stride + end]
        places[run] = encode_tokens(here, begin, end, spans, states[run], words[run], places[run])


_PACK_ONE = vector_encoder(1, LANES, TABLE_BITS, LITERAL) if AVAILABLE else _encode_by_lane
_PACK_TWO = vector_encoder(2, LANES, TABLE_BITS, LITERAL) if AVAILABLE else _encode_by_lane


@kernel
def encode_runs(
    codes: Codes,
    values: Codes,
    keys: npt.NDArray[np.uint16],
    length: int,
    spans: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint16],
    places: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint32],
    extras: npt.NDArray[np.int64],
) -> None:
    """Code one sub-block, or two side by side.

    Args:
        codes: uint16 ``[n]``, the source's bits of all.
        values: uint16 ``[n]``, the target's.
        keys: uint16 ``[n]``, of :func:`classify_all`; tokens that a table lacks are replaced by literals.
        length: coordinates of the first; the second has the rest, and no more than that.
        spans: uint32, by key; of :func:`maskreg.codec.rans.spans_of`.
        states: uint32 ``[runs, 16]``, filled with the lanes' states that decoding begins with.
        words: uint16 ``[runs, m]``, each row at least 8 longer than the first run; filled from the end.
        places: int64 ``[runs]``, filled with where in their row the words begin.
        bits: uint32 ``[runs, m]``, two bytes for each coordinate of the first and four more; filled from the beginning.
        extras: int64 ``[runs]``, filled with how many extra bits lie in ``bits``.
    """
    runs, room = words.shape
    states[:] = LOWEST_STATE
    places[:] = room
    together = (codes.size - (runs - 1) * length) // LANES * LANES
    for run in range(runs):
        here = keys[run * length : min((run + 1) * length, codes.size)]
        whole = here.size // LANES * LANES
        places[run] = encode_tokens(here, whole, here.size, spans, states[run], words[run], places[run])
        _PACK_ONE(
            here, spans, states[run:], words[run:], places[run:], PACKINGS, length, room, min(together, whole), whole
        )
    if runs == 2:
        _PACK_TWO(keys, spans, states, words, places, PACKINGS, length, room, 0, together)
    else:
        _PACK_ONE(keys, spans, states, words, places, PACKINGS, length, room, 0, together)
    marks, found, tokens = np.empty(TILE, np.uint8), np.empty(TILE, np.int64), np.empty(TILE, np.uint8)
    mark_words = marks.view(np.uint64)
    for run in range(runs):
        bit = 0
        last = min((run + 1) * length, codes.size)
        for start in range(run * length, last, TILE):
            stop = min(start + TILE, last)
            here, tile = keys[start:stop], tokens[: stop - start]
            for i in range(tile.size):
                tile[i] = np.uint8(here[i] & np.uint16(0x3F))
            far = find_far(tile, marks, mark_words, found)
            bit = extra_bits(codes[start:stop], values[start:stop], tile, found[:far], bits[run], bit)
        extras[run] = bit


@kernel
def _decode_by_lane(  # The vector functions' twin, and what finishes what they leave.
    words: npt.NDArray[np.uint16],
    numbers: npt.NDArray[np.uint8],
    table: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    tokens: npt.NDArray[np.uint8],
    places: npt.NDArray[np.int64],
    orders: npt.NDArray[np.int32],
    count: int,
) -> None:
    for run in range(places.size):
        places[run] = decode_tokens(words[run], numbers[run], table, states[run], tokens[run], 0, count, 0)


_ENTRY = (SLOT_SHIFT, FREQ_SHIFT, TABLE_BITS)
_ROOM = TILE + 16
_ONE = vector_decoder(1, LANES, TILE, _ROOM, _ENTRY) if AVAILABLE else _decode_by_lane
_TWO = vector_decoder(2, LANES, TILE, _ROOM, _ENTRY) if AVAILABLE else _decode_by_lane


@kernel
def _look_up_each(places: npt.NDArray[np.uint8], table: npt.NDArray[np.uint8], groups: int, count: int) -> None:
    for i in range(count):
        places[i] = table[places[i]]


_look_up = look_up_vectors if AVAILABLE else _look_up_each
_apply_whole = step_applier(MIDDLE, NEAREST, FEWER_BITS, LITERAL_BITS) if AVAILABLE else apply_each

_CROWDED = 0.25
"""Extra bits a coordinate, from which on tokens that have some are not looked for, but all treated alike; measured."""


@kernel
def _copy(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> None:
    # Several times as fast as an assignment, which looks for overlaps and makes a copy first.
    for i in range(source.size):
        target[i] = source[i]


@kernel
def _apply_all(
    context: Codes,
    tokens: npt.NDArray[np.uint8],
    flips: Ints,
    values: Codes,
    bits: npt.NDArray[np.uint8],
    at: int,
) -> int:
    # Whole vectors, and what they leave.
    whole = tokens.size // 8 * 8
    at = _apply_whole(context, tokens, flips, values, bits, at, whole)
    rest = tokens.size - whole
    return apply_each(context[whole:], tokens[whole:], flips[whole:], values[whole:], bits, at, rest)


@kernel
def decode_runs(
    codes: Codes,
    length: int,
    at: int,
    contexts: Fields,
    of_cell: npt.NDArray[np.uint8],
    table: npt.NDArray[np.uint32],
    block: npt.NDArray[np.uint8],
    firsts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    values: Codes,
) -> int:
    """Decode one sub-block, or two side by side; 0, or the number from 1 of one that is no sub-block.

    Args:
        codes: uint16 ``[n]``, the source's bits of all.
        length: coordinates of the first; the second has the rest, and no more than that.
        at: place of the first, counted from the first column of the block's first row.
        contexts: of the block.
        of_cell: uint8, the table of each cell; a multiple of 16.
        table: uint32, decoding tables.
        block: uint8, the whole block and :data:`SPARE_BYTES` more.
        firsts: int64 ``[runs]``, bytes of ``block`` where they begin.
        sizes: int64 ``[runs, 2]``, 16-bit words and extra bits of each.
        values: uint16 ``[n]``, filled.
    """
    runs = firsts.size
    numbers, flips = np.zeros((runs, TILE), np.uint8), np.empty((runs, TILE), np.int8)
    tokens, near = np.empty((runs, TILE), np.uint8), np.zeros((runs, _ROOM), np.uint16)
    predicted, marks, found = np.empty(TILE, np.int16), np.empty(TILE, np.uint8), np.empty(TILE, np.int64)
    mark_words, near_bytes = marks.view(np.uint64), near.view(np.uint8)
    states, places = np.empty((runs, LANES), np.uint32), np.zeros(runs, np.int64)
    counts = np.zeros(runs, np.int64)
    # As many as a tile may have, from some bit of the first byte on, and as much as is read ahead.
    extras = np.zeros(LITERAL_BITS // 8 * TILE + SPARE_BYTES, np.uint8)
    crowded = sizes[:, 1] >= _CROWDED * length
    words = firsts + STATE_BYTES
    lasts = words + 2 * sizes[:, 0]
    bits = 8 * lasts
    for run in range(runs):
        for lane in range(LANES):
            byte = firsts[run] + 4 * lane
            low = int(block[byte]) | int(block[byte + 1]) << 8
            states[run, lane] = np.uint32(low | int(block[byte + 2]) << 16 | int(block[byte + 3]) << 24)
    for start in range(0, min(length, codes.size), TILE):
        together = TILE
        for run in range(runs):
            begin = run * length + start
            n = max(0, min(TILE, length - start, codes.size - begin))
            together = min(together, n // LANES * LANES)
            counts[run] = n
            classify(codes[begin : begin + n], at + begin, contexts, numbers[run, :n], flips[run, :n], predicted)
            _look_up(numbers[run], of_cell, of_cell.size // 16, n)
            # A tile takes at most a word for each token. Copied, they are aligned, and reading on is harmless.
            copied = min(2 * n, lasts[run] - words[run])
            _copy(block[words[run] : words[run] + copied], near_bytes[run])
        if runs == 2:
            _TWO(near, numbers, table, states, tokens, places, PERMUTATIONS, together)
        else:
            _ONE(near, numbers, table, states, tokens, places, PERMUTATIONS, together)
        for run in range(runs):
            begin, n = run * length + start, counts[run]
            words[run] += 2 * decode_tokens(
                near[run], numbers[run], table, states[run], tokens[run], together, n, places[run]
            )
            if words[run] > lasts[run]:
                return run + 1
            here, there, turns = codes[begin : begin + n], values[begin : begin + n], flips[run, :n]
            end = 8 * lasts[run] + sizes[run, 1]
            if crowded[run]:
                first = bits[run] >> 3
                _copy(block[first : min(first + extras.size, block.size)], extras)
                bits[run] = 8 * first + _apply_all(here, tokens[run, :n], turns, there, extras, bits[run] & 7)
            else:
                apply_steps(here, tokens[run, :n], turns, there)
                far = find_far(tokens[run, :n], marks, mark_words, found)
                bits[run] = apply_far(here, tokens[run, :n], turns, there, found[:far], block, bits[run], end)
            if not 0 <= bits[run] <= end:
                return run + 1
    for run in range(runs):
        if words[run] != lasts[run] or bits[run] != 8 * lasts[run] + sizes[run, 1]:
            return run + 1
        for lane in range(LANES):
            if states[run, lane] != LOWEST_STATE:
                return run + 1
    return 0
