"""Sub-blocks: runs of a block's coordinates that are coded, and decode, on their own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.contexts import TILE, Bytes, classify
from maskreg.codec.jit import kernel
from maskreg.codec.rans import LANES, LOWEST_STATE, decode_tokens, encode_tokens
from maskreg.codec.steps import LITERAL, MIDDLE, apply_far, apply_steps, extra_bits, find_far

Codes = npt.NDArray[np.uint16]

STATE_BYTES = 4 * LANES

SPARE_BYTES = 8
"""Zeros that follow a block in memory while it is decoded, so that reading ahead stays inside."""


@kernel
def classify_all(
    codes: Codes,
    at: int,
    width: int,
    base: int,
    row_scales: Bytes,
    column_scales: Bytes,
    row_factors: Bytes,
    column_factors: Bytes,
    bounds: npt.NDArray[np.int16],
    tokens: npt.NDArray[np.uint8],
    turned: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.int64],
) -> None:
    """Cells of a whole block, its tokens turned to their predictions, and how often each cell has each token.

    Args:
        codes: uint16 ``[n]``, the source's bits.
        at: column of the first.
        width: of a row.
        base: of the contexts, as are the next five.
        row_scales: likewise.
        column_scales: likewise.
        row_factors: likewise.
        column_factors: likewise.
        bounds: likewise.
        tokens: uint8 ``[n]``.
        turned: uint8 ``[n]``, filled.
        cells: uint8 ``[n]``, filled.
        counts: int64 ``[cells, 64]``, added to.
    """
    flips = np.empty(TILE, np.int8)
    predicted = np.empty(TILE, np.int16)
    # Four counters of each kind: one that was just written cannot be read at once.
    parts = np.zeros((4, counts.size), np.uint32)
    for start in range(0, codes.size, TILE):
        stop = min(start + TILE, codes.size)
        here, tile, before = cells[start:stop], turned[start:stop], tokens[start:stop]
        turns = flips[: stop - start]
        classify(
            codes[start:stop], at + start, width, base, row_scales, column_scales, row_factors, column_factors,
            bounds, here, turns, predicted,
        )  # fmt: skip
        for i in range(tile.size):
            step = np.int8(np.int8(before[i]) - np.int8(MIDDLE))
            token = np.uint8(np.int8(np.int8(step ^ turns[i]) - turns[i]) + np.int8(MIDDLE))
            # A literal has no direction.
            tile[i] = np.uint8(LITERAL) if token == np.uint8(2 * MIDDLE - LITERAL) else token
        for i in range(tile.size):
            parts[i & 3, np.uint32(here[i]) << np.uint32(6) | tile[i]] += np.uint32(1)
    for part in range(4):
        for pair in range(counts.size):
            counts[pair >> 6, pair & 63] += parts[part, pair]


@kernel
def encode_run(
    codes: Codes,
    values: Codes,
    tokens: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.uint32],
    inverse: npt.NDArray[np.float64],
    ranges: npt.NDArray[np.uint32],
    states: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint16],
    bits: npt.NDArray[np.uint8],
) -> tuple[int, int]:
    """Code one sub-block: where its words begin in ``words``, and how many extra bits lie in ``bits``."""
    bits[:] = 0
    marks, found = np.empty(TILE, np.uint8), np.empty(TILE, np.int64)
    mark_words = marks.view(np.uint64)
    bit = 0
    for start in range(0, codes.size, TILE):
        stop = min(start + TILE, codes.size)
        here = tokens[start:stop]
        far = find_far(here, marks, mark_words, found)
        bit = extra_bits(codes[start:stop], values[start:stop], here, found[:far], bits, bit)
    return encode_tokens(tokens, cells, rows, inverse, ranges, states, words), bit


@kernel
def decode_run(
    codes: Codes,
    at: int,
    width: int,
    base: int,
    row_scales: Bytes,
    column_scales: Bytes,
    row_factors: Bytes,
    column_factors: Bytes,
    bounds: npt.NDArray[np.int16],
    starts: npt.NDArray[np.uint32],
    table: npt.NDArray[np.uint32],
    block: npt.NDArray[np.uint8],
    first: int,
    words: int,
    extras: int,
    values: Codes,
) -> bool:
    """Decode one sub-block; False when its bytes cannot be one.

    Args:
        codes: uint16 ``[n]``, the source's bits.
        at: place of the first, counted from the first column of the block's first row.
        width: of a row.
        base: of the contexts, as are the next five.
        row_scales: likewise.
        column_scales: likewise.
        row_factors: likewise.
        column_factors: likewise.
        bounds: likewise.
        starts: uint32 ``[256]``, where each cell's table begins in ``table``.
        table: uint32, decoding tables.
        block: uint8, the whole block and :data:`SPARE_BYTES` more.
        first: byte of ``block`` where the sub-block begins.
        words: 16-bit words that it has.
        extras: extra bits that it has.
        values: uint16 ``[n]``, filled.
    """
    cells, flips, tokens = np.empty(TILE, np.uint8), np.empty(TILE, np.int8), np.empty(TILE, np.uint8)
    predicted, marks, found = np.empty(TILE, np.int16), np.empty(TILE, np.uint8), np.empty(TILE, np.int64)
    mark_words = marks.view(np.uint64)
    near = np.zeros(TILE + 8, np.uint16)
    near_bytes = near.view(np.uint8)
    states = np.empty(LANES, np.uint32)
    for lane in range(LANES):
        byte = first + 4 * lane
        states[lane] = np.uint32(
            int(block[byte]) | int(block[byte + 1]) << 8 | int(block[byte + 2]) << 16 | int(block[byte + 3]) << 24
        )
    word = first + STATE_BYTES
    last = word + 2 * words
    bit = 8 * last
    end = bit + extras
    for start in range(0, codes.size, TILE):
        stop = min(start + TILE, codes.size)
        n = stop - start
        here = codes[start:stop]
        classify(
            here, at + start, width, base, row_scales, column_scales, row_factors, column_factors, bounds,
            cells[:n], flips[:n], predicted,
        )  # fmt: skip
        # A tile takes at most a word for each token. Copied, they are aligned, and reading past the end is harmless.
        copied = min(2 * n, last - word)
        near_bytes[:copied] = block[word : word + copied]
        word += 2 * decode_tokens(near, cells, starts, table, states, tokens, n)
        if word > last:
            return False
        apply_steps(here, tokens[:n], flips[:n], values[start:stop])
        far = find_far(tokens[:n], marks, mark_words, found)
        bit = apply_far(here, tokens[:n], flips[:n], values[start:stop], found[:far], block, bit, end)
        if bit < 0:
            return False
    for lane in range(LANES):
        if states[lane] != LOWEST_STATE:
            return False
    return word == last and bit == end
