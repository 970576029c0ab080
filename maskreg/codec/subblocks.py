"""Sub-blocks: spans of a block that are coded, and decode, on their own.

Encoding takes two passes, because tokens are coded last to first, with tables that are made of all of them:

    classify_all          a key (cell << 6 | token) per coordinate; from their counts, tables are made
    encode_sub_blocks     keys to words, last to first                   rans.py
                          and to extra bits                              ulp_steps.py

The kernel codes up to four sub-blocks side by side: native/src/encode.c.

Decoding a block on the CPU:

    header, model and directory                                            layout.py
    for each sub-block:
        cells and flips of its coordinates; cells become table numbers     contexts.py
        tokens                                                             rans.py
        values from source, tokens, flips and extra bits                   ulp_steps.py

The kernel does all of it but the header in one call: native/src/decode_coded.c. It decodes tile by tile, so that
everything about a tile stays in the first-level cache, with up to eight sub-blocks side by side: native/src/decode.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Block, Codes
from maskreg.codec.bits import Bits
from maskreg.codec.contexts import Contexts, classify
from maskreg.codec.layout import (
    BAD_DIRECTORY,
    BAD_MODEL,
    ENTRY_BYTES,
    MODEL_START,
    SHORT_DIRECTORY,
    STATE_BYTES,
    CodedHead,
    Layout,
)
from maskreg.codec.rans import (
    LANES,
    LOWEST_STATE,
    SLOTS,
    TOKENS,
    Decoding,
    Encoding,
    Table,
    decode_tokens,
    encode_tokens,
    fill_decoding,
)
from maskreg.codec.ulp_steps import COUNTERS, LITERAL, MIDDLE, Moves, apply_tokens, put_extra_bits
from maskreg.errors import CorruptError
from maskreg.native import Library, library
from maskreg.parallel import Buffers

_ABREAST = 4  # sub-blocks that the kernel codes side by side

Keys = npt.NDArray[np.uint16]

_BUFFERS = Buffers()

_INVERSES = (1 + 2.0**-40) / np.maximum(np.arange(SLOTS + 1), 1)
"""What kernels multiply by instead of dividing by a frequency."""


class Pair(NamedTuple):
    """A block to be coded.

    Attributes:
        keys: of :func:`classify_all`; tokens that a table lacks are replaced by literals.
        length: coordinates of each sub-block but the last, which has the rest, and no more than that.
    """

    source: Codes
    target: Codes
    keys: Keys
    length: int


def most_bytes(n: int, length: int) -> int:
    """Bytes that :func:`encode_sub_blocks` needs room for: a word and 16 extra bits for each coordinate, and 8 more."""
    return -(-n // length) * (ENTRY_BYTES + STATE_BYTES) + 4 * n + 8


def classify_all(
    source: Codes, position: int, contexts: Contexts, tokens: npt.NDArray[np.uint8], keys: Keys
) -> npt.NDArray[np.int64]:
    """Fill the keys of a block, cell << 6 | token, flipped where the cell says so; their counts, ``[cells, 64]``."""
    if compiled := library():
        structure, _arrays = contexts.structure(compiled)
        counts = np.zeros((contexts.cells, TOKENS), np.int64)
        scratch = compiled.write(_BUFFERS.array("counters", COUNTERS * counts.size, np.uint32))
        compiled.lib.maskreg_classify_all(
            compiled.read(source), source.size, position, structure, compiled.read(tokens), compiled.write(keys),
            contexts.cells, compiled.write(counts), scratch,
        )  # fmt: skip
        return counts
    cells, flips = np.empty(source.size, np.uint8), np.empty(source.size, np.int8)
    classify(source, position, contexts, cells, flips)
    steps = tokens.astype(np.int16) - MIDDLE
    # A literal has no direction.
    flipped = np.where(tokens == LITERAL, LITERAL, np.where(flips < 0, -steps, steps) + MIDDLE)
    keys[:] = cells.astype(np.uint16) << 6 | flipped.astype(np.uint16)
    return np.bincount(keys, minlength=contexts.cells * TOKENS).reshape(contexts.cells, TOKENS)


def encode_sub_blocks(pair: Pair, slots: Table, out: Bits) -> int:
    """Write directory and sub-blocks as they are stored, into as much room as :func:`most_bytes` says; their bytes."""
    n, length = pair.keys.size, min(pair.length, pair.keys.size)
    if compiled := library():
        structure, _arrays = _pair_structure(compiled, pair, slots)
        size: int = compiled.lib.maskreg_encode_sub_blocks(structure, compiled.write(out))
        return size
    count = -(-n // length)
    states = np.full((count, LANES), LOWEST_STATE, np.uint32)
    words, bits = np.empty((count, length), np.uint16), np.empty(length // 2 + 1, np.uint32)
    positions = encode_tokens(Encoding(pair.keys, length, slots, states, words)).tolist()
    directory, parts = [], []
    for k, first in enumerate(positions):
        own = slice(k * length, (k + 1) * length)
        tokens = (pair.keys[own] & np.uint16(0x3F)).astype(np.uint8)
        extra_bits = put_extra_bits(pair.source[own], pair.target[own], tokens, bits)
        directory += [length - first, extra_bits]
        parts += [states[k].astype("<u4"), words[k, first:].astype("<u2"), bits.astype("<u4")]
        parts[-1] = parts[-1].view(np.uint8)[: -(-extra_bits // 8)]
    stored = np.concatenate([part.view(np.uint8) for part in [np.array(directory, "<u4"), *parts]])
    out[: stored.size] = stored
    return stored.size


def _pair_structure(compiled: Library, pair: Pair, slots: Table) -> tuple[Any, Any]:
    """``maskreg_coding`` of kernels.h, and what has to live as long as it."""
    length = min(pair.length, pair.keys.size)
    words_room, bits_room = length + 8, length // 2 + 2
    words = _BUFFERS.array("words", _ABREAST * words_room, np.uint16)
    bits = _BUFFERS.array("bits", _ABREAST * bits_room, np.uint32)
    fields = (
        compiled.read(pair.source), compiled.read(pair.target), compiled.write(pair.keys), pair.keys.size, pair.length,
        compiled.read(slots), compiled.read(_INVERSES),
        compiled.write(words), words_room, compiled.write(bits), bits_room,
    )  # fmt: skip
    return compiled.ffi.new("maskreg_coding *", fields), fields


_DAMAGE = (BAD_MODEL, SHORT_DIRECTORY, BAD_DIRECTORY)
"""What the kernel returns as -3, -2 and -1: it did not come to the sub-blocks."""


def decode_coded(block: Block, source: Codes, values: Codes) -> None:
    """Fill the values of a block of which :meth:`maskreg.codec.layout.Head.read` was right; uint16 ``[n]`` each."""
    if compiled := library():
        structure, _block = _block_structure(compiled, block)
        # Room for models, and for decoding tables.
        scratch = _BUFFERS.bytes("scratch", compiled.lib.maskreg_decode_room(structure))
        damaged = compiled.lib.maskreg_decode_coded(
            structure, compiled.read(source), 0, source.size, compiled.write(scratch), compiled.write(values)
        )
        if damaged < 0:
            raise CorruptError("block", _DAMAGE[damaged])
    else:
        damaged = _decode_sub_blocks(Layout(block), source, values)
    if damaged:
        raise CorruptError("block", f"its sub-block {damaged - 1} does not decode")


def _block_structure(compiled: Library, block: Block) -> tuple[Any, Any]:
    """``maskreg_coded`` of kernels.h, and what has to live as long as it."""
    head = CodedHead.read(block)
    (width, column), shape = head.shape.grid, head.shape
    pointer = compiled.ffi.from_buffer("uint8_t[]", block)
    fields = (
        pointer, len(block), head.n, head.sub_blocks, head.size, width, column, shape.base, shape.scaled, shape.rank,
        shape.tables, MODEL_START, head.model_bytes,
    )  # fmt: skip
    return compiled.ffi.new("maskreg_coded *", fields), pointer


def _decode_sub_blocks(layout: Layout, source: Codes, values: Codes) -> int:
    """Decode all sub-blocks, as NumPy computes it; returns 0, or the number, from 1, of one that is damaged.

    Damage shows when more is read than a sub-block has, or when not everything is used up at the end.
    """
    flips = np.empty(source.size, np.int8)
    tokens, damaged = _tokens(layout, source, flips)
    for number, start in enumerate(range(0, source.size, layout.size)):
        own = slice(start, start + layout.size)
        words, extra_bits = layout.directory[number].tolist()
        bit = 8 * (int(layout.starts[number]) + STATE_BYTES + 2 * words)
        moves = Moves(source[own], tokens[number, : values[own].size], flips[own], values[own])
        if apply_tokens(moves, layout.block, bit, bit + extra_bits) != bit + extra_bits and not damaged:
            damaged = number + 1
    return damaged


def _tokens(layout: Layout, source: Codes, flips: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.uint8], int]:
    """Tokens of all sub-blocks, uint8 ``[k, length]``; and the number, from 1, of the first that is damaged."""
    contexts, own_tables = layout.model.contexts, layout.model.tables
    entries = np.empty(len(own_tables.freqs) * SLOTS, np.uint32)
    fill_decoding(own_tables.freqs, entries)
    length, sizes = layout.size, layout.directory
    count = len(sizes)
    cells = np.empty(source.size, np.uint8)
    classify(source, contexts.grid.column, contexts, cells, flips)
    tables = np.zeros((count, length), np.uint8)
    tables.reshape(-1)[: source.size] = own_tables.of_cell[cells]
    states, words = np.empty((count, LANES), np.uint32), np.zeros((count, length + 1), np.uint16)
    for k, start in enumerate(layout.starts[:-1].tolist()):
        first = start + STATE_BYTES
        states[k] = layout.block[start:first].view("<u4")
        kept = min(int(sizes[k, 0]), length)
        words[k, :kept] = layout.block[first : first + 2 * kept].view("<u2")
    lengths = np.full(count, length)
    lengths[-1] = source.size - (count - 1) * length
    tokens = np.zeros((count, length), np.uint8)
    taken = decode_tokens(Decoding(words, tables, entries, states, tokens, lengths))
    complete = (taken == sizes[:, 0]) & (states == LOWEST_STATE).all(axis=1)
    return tokens, 0 if complete.all() else int(np.argmin(complete)) + 1
