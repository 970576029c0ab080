"""Decoding a coded block, or some of its sub-blocks, on the CPU.

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
    MODEL_START,
    SHORT_DIRECTORY,
    STATE_BYTES,
    CodedHead,
    Layout,
)
from maskreg.codec.rans import LANES, LOWEST_STATE, SLOTS, Decoding, Table, decode_tokens, fill_decoding
from maskreg.codec.ulp_steps import Moves, apply_tokens
from maskreg.errors import CorruptError
from maskreg.native import Library, library
from maskreg.parallel import Buffers

Ints64 = npt.NDArray[np.int64]


_DAMAGE = (BAD_MODEL, SHORT_DIRECTORY, BAD_DIRECTORY)
"""What the kernel returns as -3, -2 and -1: it did not come to the sub-blocks."""

_BUFFERS = Buffers()
"""What kernels need room for: models, and decoding tables."""


class Shared(NamedTuple):
    """What all sub-blocks of a block decode with.

    Attributes:
        contexts: of the block.
        table_of_cell: uint8 ``[cells]``.
        entries: uint32, decoding tables of :func:`maskreg.codec.rans.fill_decoding`.
        block: uint8, the whole block.
    """

    contexts: Contexts
    table_of_cell: npt.NDArray[np.uint8]
    entries: Table
    block: Bits


class SubBlocks(NamedTuple):
    """Sub-blocks that follow each other.

    Attributes:
        length: coordinates of each but the last, which has the rest, and no more than that.
        starts: int64 ``[k]``, bytes of the block where they begin.
        sizes: int64 ``[k, 2]``, words and extra bits of each.
    """

    length: int
    starts: Ints64
    sizes: Ints64


def decode_coded(block: Block, source: Codes, start: int, values: Codes) -> None:
    """Fill ``values`` from coordinate ``start``, an entry point, for as long as the source goes.

    Args:
        block: the whole block, of which :meth:`maskreg.codec.layout.Head.read` was right.
        source: uint16 ``[m]``, of the span alone.
        start: of the block's coordinates.
        values: uint16 ``[m]``, filled.

    Raises:
        CorruptError: the block is damaged.
    """
    if compiled := library():
        structure, _block = _structure(compiled, block)
        scratch = _BUFFERS.bytes("scratch", compiled.lib.maskreg_decode_room(structure))
        damaged = compiled.lib.maskreg_decode_coded(
            structure, compiled.read(source), start, source.size, compiled.write(scratch), compiled.write(values)
        )
        if damaged < 0:
            raise CorruptError("block", _DAMAGE[damaged])
    else:
        layout = Layout(block)
        tables = layout.model.tables
        entries = np.empty(len(tables.freqs) * SLOTS, np.uint32)
        fill_decoding(tables.freqs, entries)
        shared = Shared(layout.model.contexts, tables.of_cell, entries, layout.block)
        first = start // layout.size
        own = slice(first, first + -(-source.size // layout.size))
        sub_blocks = SubBlocks(layout.size, layout.starts[:-1][own], layout.directory[own])
        damaged = _decode_sub_blocks(source, shared.contexts.grid.column + start, shared, sub_blocks, values)
        damaged += first if damaged else 0
    if damaged:
        raise CorruptError("block", f"its sub-block {damaged - 1} does not decode")


def _structure(compiled: Library, block: Block) -> tuple[Any, Any]:
    """``maskreg_coded`` of kernels.h, and what has to live as long as it."""
    head = CodedHead.read(block)
    (width, column), shape = head.shape.grid, head.shape
    pointer = compiled.ffi.from_buffer("uint8_t[]", block)
    fields = (
        pointer, len(block), head.n, head.sub_blocks, head.size, width, column, shape.base, shape.scaled, shape.rank,
        shape.tables, MODEL_START, head.model_bytes,
    )  # fmt: skip
    return compiled.ffi.new("maskreg_coded *", fields), pointer


def _decode_sub_blocks(source: Codes, position: int, shared: Shared, sub_blocks: SubBlocks, values: Codes) -> int:
    """Decode sub-blocks, as NumPy computes it; returns 0, or the number, from 1, of one that is damaged.

    Damage shows when more is read than a sub-block has, or when not everything is used up at the end.

    Args:
        source: uint16 ``[n]``, of all.
        position: of the first coordinate, counted from the first column of the block's first row.
        shared: what all sub-blocks decode with.
        sub_blocks: where they are.
        values: uint16 ``[n]``, filled.
    """
    flips = np.empty(source.size, np.int8)
    tokens, damaged = _tokens(source, position, shared, sub_blocks, flips)
    for number, start in enumerate(range(0, source.size, sub_blocks.length)):
        own = slice(start, start + sub_blocks.length)
        words, extra_bits = sub_blocks.sizes[number].tolist()
        bit = 8 * (int(sub_blocks.starts[number]) + STATE_BYTES + 2 * words)
        moves = Moves(source[own], tokens[number, : values[own].size], flips[own], values[own])
        if apply_tokens(moves, shared.block, bit, bit + extra_bits) != bit + extra_bits and not damaged:
            damaged = number + 1
    return damaged


def _tokens(
    source: Codes, position: int, shared: Shared, sub_blocks: SubBlocks, flips: npt.NDArray[np.int8]
) -> tuple[npt.NDArray[np.uint8], int]:
    """Tokens of all sub-blocks, uint8 ``[k, length]``; and the number, from 1, of the first that is damaged."""
    length, starts, sizes = sub_blocks
    count = starts.size
    cells = np.empty(source.size, np.uint8)
    classify(source, position, shared.contexts, cells, flips)
    tables = np.zeros((count, length), np.uint8)
    tables.reshape(-1)[: source.size] = shared.table_of_cell[cells]
    states, words = np.empty((count, LANES), np.uint32), np.zeros((count, length + 1), np.uint16)
    for k, start in enumerate(starts.tolist()):
        first = start + STATE_BYTES
        states[k] = shared.block[start:first].view("<u4")
        kept = min(int(sizes[k, 0]), length)
        words[k, :kept] = shared.block[first : first + 2 * kept].view("<u2")
    lengths = np.full(count, length)
    lengths[-1] = source.size - (count - 1) * length
    tokens = np.zeros((count, length), np.uint8)
    taken = decode_tokens(Decoding(words, tables, shared.entries, states, tokens, lengths))
    complete = (taken == sizes[:, 0]) & (states == LOWEST_STATE).all(axis=1)
    return tokens, 0 if complete.all() else int(np.argmin(complete)) + 1
