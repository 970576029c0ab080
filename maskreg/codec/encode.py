"""Encoding sub-blocks: spans of a block that are coded, and decode, on their own. Two are coded side by side.

Encoding takes two passes, because tokens are coded last to first, with tables that are made of all of them:

    classify_all          a key (cell << 6 | token) per coordinate; from their counts, tables are made
    encode_sub_blocks     keys to words, last to first                   rans.py, vector_encode.py
                          then the extra bits, first to last             ulp_steps.py

On processors with AVX2 the innermost loop is the vector function; elsewhere its twin here, lane by lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.contexts import TILE, Cells, Fields, classify
from maskreg.codec.rans import LANES, LOWEST_STATE, TABLE_BITS, Encoding, Table, encode_tokens
from maskreg.codec.ulp_steps import LITERAL, MIDDLE, Moves, find_far, put_extra_bits
from maskreg.codec.vector_encode import PACKINGS, vector_encoder
from maskreg.jit import kernel
from maskreg.jit.vector import AVAILABLE

Keys = npt.NDArray[np.uint16]
Ints64 = npt.NDArray[np.int64]


@kernel
def classify_all(source: Codes, position: int, contexts: Fields, tokens: npt.NDArray[np.uint8], keys: Keys) -> None:
    """Keys of a whole block: the cell of each coordinate, and its token, flipped where the cell says so.

    Args:
        source: uint16 ``[n]``.
        position: column of the first.
        contexts: of the block.
        tokens: uint8 ``[n]``, not flipped.
        keys: uint16 ``[n]``, filled: cell << 6 | token.
    """
    cells, flips = np.empty(TILE, np.uint8), np.empty(TILE, np.int8)
    predicted = np.empty(TILE, np.int16)
    for start in range(0, source.size, TILE):
        stop = min(start + TILE, source.size)
        tile_keys, tile_tokens = keys[start:stop], tokens[start:stop]
        out = Cells(cells[: stop - start], flips[: stop - start], predicted)
        classify(source[start:stop], position + start, contexts, out)
        for i in range(tile_keys.size):
            step = np.int8(np.int8(tile_tokens[i]) - np.int8(MIDDLE))
            token = np.uint8(np.int8(np.int8(step ^ flips[i]) - flips[i]) + np.int8(MIDDLE))
            # A literal has no direction.
            token = np.uint8(LITERAL) if token == np.uint8(2 * MIDDLE - LITERAL) else token
            tile_keys[i] = np.uint16(np.uint16(cells[i]) << np.uint16(6)) | np.uint16(token)


class Pair(NamedTuple):
    """The coordinates of one sub-block, or of two that follow each other.

    Attributes:
        source: uint16 ``[n]``.
        target: uint16 ``[n]``.
        keys: uint16 ``[n]``, of :func:`classify_all`; tokens that a table lacks are replaced by literals.
        length: coordinates of the first sub-block; the second has the rest, and no more than that.
    """

    source: Codes
    target: Codes
    keys: Keys
    length: int


class Coded(NamedTuple):
    """One or two coded sub-blocks, a row each.

    Attributes:
        states: uint32 ``[k, 16]``, with which decoding begins.
        words: uint16 ``[k, m]``, at least 8 longer than the first sub-block; filled from the end.
        positions: int64 ``[k]``, where in their row the words begin.
        bits: uint32 ``[k, m]``, two bytes for each coordinate of the first and four more; filled from the beginning.
        extra_bits: int64 ``[k]``, how many bits those are.
    """

    states: npt.NDArray[np.uint32]
    words: npt.NDArray[np.uint16]
    positions: Ints64
    bits: npt.NDArray[np.uint32]
    extra_bits: Ints64

    def first(self) -> Coded:
        """Its first row alone."""
        return Coded(self.states[:1], self.words[:1], self.positions[:1], self.bits[:1], self.extra_bits[:1])


class _Packing(NamedTuple):
    """What :func:`maskreg.codec.vector_encode.vector_encoder` takes."""

    keys: Keys
    slots: Table
    states: npt.NDArray[np.uint32]
    words: npt.NDArray[np.uint16]
    positions: Ints64


@kernel
def _pack_by_lane(
    arrays: _Packing, packings: npt.NDArray[np.int32], strides: tuple[int, int], span: tuple[int, int]
) -> None:
    stride, (begin, end) = strides[0], span
    for k in range(arrays.positions.size):
        keys = arrays.keys[k * stride : k * stride + end]
        encoding = Encoding(keys, arrays.slots, arrays.states[k], arrays.words[k])
        arrays.positions[k] = encode_tokens(encoding, begin, end, arrays.positions[k])


_pack_one = vector_encoder(1, LANES, TABLE_BITS, LITERAL) if AVAILABLE else _pack_by_lane
_pack_two = vector_encoder(2, LANES, TABLE_BITS, LITERAL) if AVAILABLE else _pack_by_lane


@kernel
def encode_sub_blocks(pair: Pair, slots: Table, out: Coded) -> None:
    """Code one sub-block, or two side by side.

    Args:
        pair: what is coded.
        slots: uint32, by key; of :func:`maskreg.codec.rans.slots_of`.
        out: filled.
    """
    keys, length = pair.keys, pair.length
    count, room = out.words.shape
    out.states[:] = LOWEST_STATE
    out.positions[:] = room
    # From the end: lane by lane down to a multiple of 16, one sub-block down to where both go on, then both at once.
    together = (keys.size - (count - 1) * length) // LANES * LANES
    for k in range(count):
        own_keys = keys[k * length : min((k + 1) * length, keys.size)]
        whole = own_keys.size // LANES * LANES
        encoding = Encoding(own_keys, slots, out.states[k], out.words[k])
        out.positions[k] = encode_tokens(encoding, whole, own_keys.size, out.positions[k])
        alone = _Packing(own_keys, slots, out.states[k : k + 1], out.words[k : k + 1], out.positions[k : k + 1])
        _pack_one(alone, PACKINGS, (length, room), (min(together, whole), whole))
    both = _Packing(keys, slots, out.states, out.words, out.positions)
    if count == 2:
        _pack_two(both, PACKINGS, (length, room), (0, together))
    else:
        _pack_one(both, PACKINGS, (length, room), (0, together))
    for k in range(count):
        _write_extra_bits(pair, k, out)


@kernel
def _write_extra_bits(pair: Pair, k: int, out: Coded) -> None:
    marks, far, tokens = np.empty(TILE, np.uint8), np.empty(TILE, np.int64), np.empty(TILE, np.uint8)
    flips = np.empty(0, np.int8)
    last, bit = min((k + 1) * pair.length, pair.keys.size), 0
    for start in range(k * pair.length, last, TILE):
        stop = min(start + TILE, last)
        keys, tile = pair.keys[start:stop], tokens[: stop - start]
        for i in range(tile.size):
            tile[i] = np.uint8(keys[i] & np.uint16(0x3F))
        count = find_far(tile, marks, far)
        # How far a coordinate moved does not depend on flips.
        moves = Moves(pair.source[start:stop], tile, flips, pair.target[start:stop])
        bit = put_extra_bits(moves, far[:count], out.bits[k], bit)
    out.extra_bits[k] = bit
