"""Decoding sub-blocks, one or two side by side, on the CPU.

It goes tile by tile (4,096 coordinates), so that everything about a tile stays in the first-level cache:

    for each tile:
        for each of the one or two sub-blocks:
            cells and flips of its coordinates; cells become table numbers; copy its next words
        decode the tokens of both, side by side                       rans.py, vector_decode.py
        for each: values from source, tokens, flips and extra bits    ulp_steps.py

On processors with AVX2 the innermost loops are the vector functions; elsewhere their twins here, lane by lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Bits
from maskreg.codec.contexts import TILE, Cells, Fields, classify
from maskreg.codec.layout import SPARE_BYTES, STATE_BYTES
from maskreg.codec.rans import (
    FREQ_SHIFT,
    LANES,
    LOWEST_STATE,
    SLOT_SHIFT,
    TABLE_BITS,
    Decoding,
    Table,
    decode_tokens,
)
from maskreg.codec.ulp_steps import (
    FEWER_BITS,
    LITERAL_BITS,
    MIDDLE,
    NEAREST,
    Moves,
    apply_each,
    apply_far,
    apply_near,
    find_far,
)
from maskreg.codec.vector_decode import (
    PERMUTATIONS,
    EntryBits,
    StepTokens,
    look_up_vectors,
    step_applier,
    vector_decoder,
)
from maskreg.jit import kernel
from maskreg.jit.vector import AVAILABLE

_CROWDED = 0.25
"""Extra bits per coordinate from which on all tokens are treated alike, instead of looking for those with some."""

_ROOM = TILE + 16
"""Words kept of a sub-block: a tile takes at most one per token, and vectors read ahead."""

Ints64 = npt.NDArray[np.int64]


class Shared(NamedTuple):
    """What all sub-blocks of a block decode with.

    Attributes:
        contexts: of the block.
        table_of_cell: uint8, a multiple of 16 long.
        entries: uint32, decoding tables of :func:`maskreg.codec.rans.fill_decoding`.
        block: uint8, the whole block and :data:`~maskreg.codec.layout.SPARE_BYTES` more.
    """

    contexts: Fields
    table_of_cell: npt.NDArray[np.uint8]
    entries: Table
    block: Bits


class SubBlocks(NamedTuple):
    """One sub-block, or two that follow each other.

    Attributes:
        length: coordinates of the first; the second has the rest, and no more than that.
        starts: int64 ``[k]``, bytes of the block where they begin.
        sizes: int64 ``[k, 2]``, words and extra bits of each.
    """

    length: int
    starts: Ints64
    sizes: Ints64


class _Lanes(NamedTuple):
    """A tile of one or two sub-blocks, a row each, as :func:`maskreg.codec.vector_decode.vector_decoder` takes it."""

    words: npt.NDArray[np.uint16]
    tables: npt.NDArray[np.uint8]
    entries: Table
    states: npt.NDArray[np.uint32]
    tokens: npt.NDArray[np.uint8]
    positions: Ints64


class _Cursors(NamedTuple):
    """Where one or two sub-blocks are read, int64 ``[k]`` each: words in bytes of the block, extra bits in bits."""

    word: Ints64
    word_end: Ints64
    bit: Ints64
    bit_end: Ints64


class _Scratch(NamedTuple):
    """Room for the extra bits of a tile.

    Attributes:
        marks: uint8 ``[4096]``.
        far: int64 ``[4096]``.
        extras: uint8, the extra bits that a tile may have, from some bit of the first byte on, and 4 bytes.
    """

    marks: npt.NDArray[np.uint8]
    far: Ints64
    extras: Bits


@kernel
def _decode_by_lane(lanes: _Lanes, orders: npt.NDArray[np.int32], count: int) -> None:
    for k in range(lanes.positions.size):
        decoding = Decoding(lanes.words[k], lanes.tables[k], lanes.entries, lanes.states[k], lanes.tokens[k])
        lanes.positions[k] = decode_tokens(decoding, 0, count, 0)


_ENTRY = EntryBits(SLOT_SHIFT, FREQ_SHIFT, TABLE_BITS)
_decode_one = vector_decoder(1, LANES, (TILE, _ROOM), _ENTRY) if AVAILABLE else _decode_by_lane
_decode_two = vector_decoder(2, LANES, (TILE, _ROOM), _ENTRY) if AVAILABLE else _decode_by_lane


@kernel
def _look_up_each(keys: npt.NDArray[np.uint8], table: npt.NDArray[np.uint8], groups: int, count: int) -> None:
    for i in range(count):
        keys[i] = table[keys[i]]


_look_up = look_up_vectors if AVAILABLE else _look_up_each
_apply_whole = step_applier(StepTokens(MIDDLE, NEAREST, FEWER_BITS, LITERAL_BITS)) if AVAILABLE else apply_each


@kernel
def _copy(source: Bits, target: Bits) -> None:
    # A slice assignment checks for overlaps and copies twice: several times as slow.
    for i in range(source.size):
        target[i] = source[i]


@kernel
def apply_all(moves: Moves, bits: Bits, start: int) -> int:
    """Fill the values of all tokens; returns the bit after their extra bits. As of :func:`apply_each`."""
    n = moves.tokens.size
    whole = n // 8 * 8
    bit = _apply_whole(moves, bits, start, whole)
    rest = Moves(moves.source[whole:], moves.tokens[whole:], moves.flips[whole:], moves.values[whole:])
    return apply_each(rest, bits, bit, n - whole)


@kernel
def _read_states(block: Bits, starts: Ints64, states: npt.NDArray[np.uint32]) -> None:
    for k in range(starts.size):
        for lane in range(LANES):
            byte = starts[k] + 4 * lane
            low = int(block[byte]) | int(block[byte + 1]) << 8
            states[k, lane] = np.uint32(low | int(block[byte + 2]) << 16 | int(block[byte + 3]) << 24)


@kernel
def _end_tile(moves: Moves, crowded: bool, block: Bits, scratch: _Scratch, bits: tuple[int, int]) -> int:
    """Fill the values of a tile; returns the bit after its extra bits, -1 when there are too few.

    Args:
        moves: values are filled.
        crowded: whether to treat all tokens alike.
        block: the whole block.
        scratch: room.
        bits: where its extra bits begin, and where those of the sub-block end.
    """
    start, end = bits
    if crowded:
        # Copied, because reading may go on beyond the block, by as much as a tile may take.
        first = start >> 3
        _copy(block[first : min(first + scratch.extras.size, block.size)], scratch.extras)
        stop = 8 * first + apply_all(moves, scratch.extras, start & 7)
        return stop if stop <= end else -1
    apply_near(moves)
    count = find_far(moves.tokens, scratch.marks, scratch.far)
    return apply_far(moves, scratch.far[:count], block, start, end)


@kernel
def _is_complete(cursors: _Cursors, states: npt.NDArray[np.uint32], k: int) -> bool:
    """Whether a sub-block was read to its very end, and every lane is back at its lowest state."""
    complete = cursors.word[k] == cursors.word_end[k] and cursors.bit[k] == cursors.bit_end[k]
    for lane in range(LANES):
        complete &= states[k, lane] == LOWEST_STATE
    return bool(complete)


@kernel
def decode_sub_blocks(source: Codes, position: int, shared: Shared, sub_blocks: SubBlocks, values: Codes) -> int:
    """Decode one sub-block, or two side by side; returns 0, or the number, from 1, of one that is damaged.

    Damage shows when a cursor passes its end, or when not everything is used up at the end. Until then no index leaves
    its array: a tile's words are a copy with room for one per token, and extra bits are checked or copied likewise.

    Args:
        source: uint16 ``[n]``, of all.
        position: of the first coordinate, counted from the first column of the block's first row.
        shared: what all sub-blocks decode with.
        sub_blocks: where they are.
        values: uint16 ``[n]``, filled.
    """
    length, starts, sizes = sub_blocks
    contexts, table_of_cell, entries, block = shared
    count, groups = starts.size, table_of_cell.size // 16
    words = starts + STATE_BYTES
    ends = words + 2 * sizes[:, 0]
    cursors = _Cursors(words, ends, 8 * ends, 8 * ends + sizes[:, 1])
    crowded = sizes[:, 1] >= _CROWDED * length
    flips, predicted, marks = np.empty((count, TILE), np.int8), np.empty(TILE, np.int16), np.empty(TILE, np.uint8)
    extras = np.zeros(LITERAL_BITS // 8 * TILE + SPARE_BYTES, np.uint8)
    scratch = _Scratch(marks, np.empty(TILE, np.int64), extras)
    near, tables = np.zeros((count, _ROOM), np.uint16), np.zeros((count, TILE), np.uint8)
    states, tokens = np.empty((count, LANES), np.uint32), np.empty((count, TILE), np.uint8)
    near_bytes = near.view(np.uint8)
    lanes = _Lanes(near, tables, entries, states, tokens, np.zeros(count, np.int64))
    _read_states(block, starts, states)
    for start in range(0, min(length, source.size), TILE):
        together = TILE
        for k in range(count):
            begin = k * length + start
            n = max(0, min(TILE, length - start, source.size - begin))
            together = min(together, n // LANES * LANES)
            cells = Cells(tables[k, :n], flips[k, :n], predicted)
            classify(source[begin : begin + n], position + begin, contexts, cells)
            _look_up(tables[k], table_of_cell, groups, n)
            # Copied, words are aligned, and reading ahead stays inside.
            copied = min(2 * n, cursors.word_end[k] - cursors.word[k])
            _copy(block[cursors.word[k] : cursors.word[k] + copied], near_bytes[k])
        if count == 2:
            _decode_two(lanes, PERMUTATIONS, together)
        else:
            _decode_one(lanes, PERMUTATIONS, together)
        for k in range(count):
            begin = k * length + start
            n = max(0, min(TILE, length - start, source.size - begin))
            # What the vectors left: the end of a tile, or what one sub-block has more of than the other.
            decoding = Decoding(near[k], tables[k], entries, states[k], tokens[k])
            cursors.word[k] += 2 * decode_tokens(decoding, together, n, lanes.positions[k])
            if cursors.word[k] > cursors.word_end[k]:
                return k + 1
            moves = Moves(source[begin : begin + n], tokens[k, :n], flips[k, :n], values[begin : begin + n])
            cursors.bit[k] = _end_tile(moves, crowded[k], block, scratch, (cursors.bit[k], cursors.bit_end[k]))
            if cursors.bit[k] < 0:
                return k + 1
    for k in range(count):
        if not _is_complete(cursors, states, k):
            return k + 1
    return 0
