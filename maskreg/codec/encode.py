"""Encoding sub-blocks: spans of a block that are coded, and decode, on their own.

Encoding takes two passes, because tokens are coded last to first, with tables that are made of all of them:

    classify_all          a key (cell << 6 | token) per coordinate; from their counts, tables are made
    encode_sub_blocks     keys to words, last to first                   rans.py
                          and to extra bits                              ulp_steps.py

The kernel codes up to four sub-blocks side by side: native/src/encode.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.contexts import Contexts, classify
from maskreg.codec.rans import LANES, LOWEST_STATE, SLOTS, TOKENS, Encoding, Table, encode_tokens
from maskreg.codec.ulp_steps import COUNTERS, LITERAL, MIDDLE, put_extra_bits
from maskreg.native import Library, library
from maskreg.parallel import Buffers

ABREAST = 4
"""Sub-blocks that are coded side by side."""

Keys = npt.NDArray[np.uint16]
Ints64 = npt.NDArray[np.int64]

_BUFFERS = Buffers()

_INVERSES = (1 + 2.0**-40) / np.maximum(np.arange(SLOTS + 1), 1)
"""What kernels multiply by instead of dividing by a frequency."""


class Pair(NamedTuple):
    """Up to four sub-blocks to be coded.

    Attributes:
        source: uint16 ``[n]``.
        target: uint16 ``[n]``.
        keys: uint16 ``[n]``, of :func:`classify_all`; tokens that a table lacks are replaced by literals.
        length: coordinates of each sub-block but the last, which has the rest, and no more than that.
    """

    source: Codes
    target: Codes
    keys: Keys
    length: int


class Coded(NamedTuple):
    """Coded sub-blocks, a row each.

    Attributes:
        states: uint32 ``[k, 16]``, with which decoding begins.
        words: uint16 ``[k, m]``, at least 8 longer than the longest sub-block; filled from the end.
        positions: int64 ``[k]``, where in their row the words begin.
        bits: uint32 ``[k, m]``, two bytes for each coordinate of the longest and four more; filled from the beginning.
        extra_bits: int64 ``[k]``, how many bits those are.
    """

    states: npt.NDArray[np.uint32]
    words: npt.NDArray[np.uint16]
    positions: Ints64
    bits: npt.NDArray[np.uint32]
    extra_bits: Ints64


def room_for(count: int, length: int) -> Coded:
    """Room for so many coded sub-blocks of so many coordinates, which the thread's next call gives out again."""
    width, bits_width = length + 8, length // 2 + 2
    return Coded(
        states=np.empty((count, LANES), np.uint32),
        words=_BUFFERS.array("words", count * width, np.uint16).reshape(count, width),
        positions=np.empty(count, np.int64),
        bits=_BUFFERS.array("bits", count * bits_width, np.uint32).reshape(count, bits_width),
        extra_bits=np.empty(count, np.int64),
    )


def classify_all(
    source: Codes, position: int, contexts: Contexts, tokens: npt.NDArray[np.uint8], keys: Keys
) -> npt.NDArray[np.int64]:
    """Keys of a whole block: the cell of each coordinate, and its token, flipped where the cell says so.

    Args:
        source: uint16 ``[n]``.
        position: column of the first.
        contexts: of the block.
        tokens: uint8 ``[n]``, not flipped.
        keys: uint16 ``[n]``, filled: cell << 6 | token.

    Returns:
        How many there are of each, int64 ``[cells, 64]``.
    """
    if compiled := library():
        structure = compiled.ffi.new("maskreg_contexts *")
        _arrays = contexts.fill(compiled, structure)
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


def encode_sub_blocks(pair: Pair, slots: Table, out: Coded) -> None:
    """Code up to four sub-blocks.

    Args:
        pair: what is coded.
        slots: uint32, by key; of :func:`maskreg.codec.rans.slots_of`.
        out: filled, a row for each sub-block.
    """
    count = -(-pair.keys.size // pair.length)
    if compiled := library():
        structure, _arrays = _structure(compiled, pair, slots, out)
        compiled.lib.maskreg_encode_sub_blocks(structure, count)
        return
    out.states[:count] = LOWEST_STATE
    coding = Encoding(pair.keys, pair.length, slots, out.states[:count], out.words[:count])
    out.positions[:count] = encode_tokens(coding)
    for k in range(count):
        own = slice(k * pair.length, (k + 1) * pair.length)
        tokens = (pair.keys[own] & np.uint16(0x3F)).astype(np.uint8)
        out.extra_bits[k] = put_extra_bits(pair.source[own], pair.target[own], tokens, out.bits[k])


def _structure(compiled: Library, pair: Pair, slots: Table, out: Coded) -> tuple[Any, list[Any]]:
    """``maskreg_coding`` of kernels.h, and what has to live as long as it."""
    structure = compiled.ffi.new("maskreg_coding *")
    inputs = [compiled.read(array) for array in (pair.source, pair.target, slots, _INVERSES)]
    outputs = [compiled.write(array) for array in (pair.keys, *out)]
    structure.source, structure.target, structure.slots, structure.inverses = inputs
    for name, array in zip(("keys", *Coded._fields), outputs, strict=True):
        setattr(structure, name, array)
    structure.n, structure.length = pair.keys.size, pair.length
    structure.words_room, structure.bits_room = out.words.shape[1], out.bits.shape[1]
    return structure, inputs + outputs
