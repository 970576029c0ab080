"""Decoding the sub-blocks of a block on the CPU.

    for each sub-block:
        cells and flips of its coordinates; cells become table numbers     contexts.py
        tokens                                                             rans.py
        values from source, tokens, flips and extra bits                   ulp_steps.py

The kernel does it tile by tile, so that everything about a tile stays in the first-level cache, with up to eight
sub-blocks side by side: native/src/decode.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Bits
from maskreg.codec.contexts import MAX_CELLS, Contexts, classify
from maskreg.codec.layout import STATE_BYTES
from maskreg.codec.rans import LANES, LOWEST_STATE, Decoding, Table, decode_tokens
from maskreg.codec.ulp_steps import Moves, apply_tokens
from maskreg.native import Library, library

Ints64 = npt.NDArray[np.int64]


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


def decode_sub_blocks(source: Codes, position: int, shared: Shared, sub_blocks: SubBlocks, values: Codes) -> int:
    """Decode sub-blocks; returns 0, or the number, from 1, of one that is damaged.

    Damage shows when more is read than a sub-block has, or when not everything is used up at the end.

    Args:
        source: uint16 ``[n]``, of all.
        position: of the first coordinate, counted from the first column of the block's first row.
        shared: what all sub-blocks decode with.
        sub_blocks: where they are.
        values: uint16 ``[n]``, filled.
    """
    if compiled := library():
        starts, sizes = (np.ascontiguousarray(array) for array in sub_blocks[1:])
        structure, _arrays = _structure(compiled, shared)
        damaged: int = compiled.lib.maskreg_decode_sub_blocks(
            compiled.read(source), source.size, position, structure,
            starts.size, sub_blocks.length, compiled.read(starts), compiled.read(sizes), compiled.write(values),
        )  # fmt: skip
        return damaged
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


def _structure(compiled: Library, shared: Shared) -> tuple[Any, list[Any]]:
    """``maskreg_shared`` of kernels.h, and what has to live as long as it."""
    contexts = shared.contexts
    table_of_cell = np.zeros(MAX_CELLS, np.uint8)
    table_of_cell[: shared.table_of_cell.size] = shared.table_of_cell
    structure = compiled.ffi.new("maskreg_shared *")
    arrays = [compiled.read(array) for array in (table_of_cell, shared.entries, shared.block)]
    structure.table_of_cell, structure.entries, structure.block = arrays
    structure.block_bytes = shared.block.size
    return structure, arrays + contexts.fill(compiled, structure.contexts)
