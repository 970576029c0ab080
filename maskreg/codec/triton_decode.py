"""Decoding where the tensors are: the sub-blocks of many blocks at once, with the same integers as on the CPU.

Two kernels. The first finds the cell of every coordinate, all at the same time, and keeps a byte of each: the number of
its table, and whether its step is turned round. The second decodes: the lanes of a sub-block advance together, a
token each, and prefix sums over the lanes say which of the next words and of the extra bits are whose.

Headers, models and directories are read and checked on the CPU, by :class:`maskreg.codec.step1.Layout`. Beyond that the
kernels trust nothing: whatever the bytes say, they read and write inside their arrays and take a bounded time.

This module alone imports Triton, and is imported only when there is something to decode with it. With
``TRITON_INTERPRET=1`` in the environment Triton runs the kernels on the CPU, slowly: that is for tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from maskreg.codec.blocks import STATE_BYTES
from maskreg.codec.contexts import MAX_CELLS, PLAIN_CLASSES, SCALED_CLASSES, SIZES
from maskreg.codec.rans import LANES, LOWEST_STATE, SLOTS, TABLE_BITS, TOKENS
from maskreg.codec.steps import FEWER_BITS, LITERAL, LITERAL_BITS, MIDDLE, NEAREST
from maskreg.errors import CorruptError

if TYPE_CHECKING:
    from maskreg.codec.step1 import Layout

_TILE = 1024
"""Coordinates that one program of the first kernel works on."""

_WARP = 32
"""Lanes that one program of the second works on: one for each thread of a warp."""

_SPARE_BYTES = 4
"""Follow the last extra bits, so that three bytes can be read from where any begin."""

_FREQ_SHIFT, _BITS_SHIFT = 12, 25
"""A span is a token's first slot, its frequency (it may be 4,096) and the number of its extra bits, from these bits."""

_LOCK = threading.Lock()
"""Nothing is compiled twice, and Triton's interpreter serves one thread at a time."""


def decode_layouts(contexts: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """Decode blocks in one launch, on the device where their contexts are.

    Beside the results, that takes three bytes of the device's memory for each coordinate, and the blocks.

    Args:
        contexts: int16 ``[n]`` of each block, all on one device.
        layouts: of the blocks.

    Returns:
        int16 ``[n]`` of each block.

    Raises:
        CorruptError: a sub-block does not decode.
    """
    if not layouts:
        return []
    values, failed = launch(contexts, layouts)
    numbers = [number for layout in layouts for number in range(len(layout.directory))]
    if failed.any():
        raise _corrupt(numbers[int(failed.argmax())])
    parts, at = [], 0
    for layout in layouts:
        parts.append(values[at : at + layout.n])
        at += layout.n
    return parts


def launch(contexts: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """Values of all blocks, one after the other, and which of all their sub-blocks did not decode.

    Raises:
        CorruptError: a sub-block says that it has more than any can.
    """
    context = contexts[0].contiguous() if len(contexts) == 1 else torch.cat(list(contexts))
    arrays = _gather(layouts)
    at = _Arrays(*(torch.from_numpy(array).to(context.device) for array in arrays))
    runs = len(arrays.runs)
    lookup, values = torch.empty_like(context, dtype=torch.uint8), torch.empty_like(context)
    failed = torch.empty(runs * LANES, dtype=torch.int32, device=context.device)
    tiles = -(-max(layout.n for layout in layouts) // _TILE)
    # Triton works on the current device, whatever the tensors say.
    with _LOCK, torch.cuda.device(context.device) if context.is_cuda else nullcontext():
        _classify[(tiles, len(layouts))](
            context, at.models, at.table_of_cell, at.side, lookup,
            TILE=_TILE, FIELDS=arrays.models.shape[1], CELLS=MAX_CELLS, SIZES=SIZES,
            PLAIN_CLASSES=PLAIN_CLASSES, SCALED_CLASSES=SCALED_CLASSES, enable_fp_fusion=False,
        )  # fmt: skip
        _decode[(-(-runs * LANES // _WARP),)](
            context, lookup, at.runs, runs, at.states, at.words, at.extras, at.tokens, at.spans, values, failed,
            WARP=_WARP, FIELDS=arrays.runs.shape[1], LANES=LANES, TABLE_BITS=TABLE_BITS, TOKENS=TOKENS,
            LOWEST_STATE=LOWEST_STATE, MIDDLE=MIDDLE, LITERAL=LITERAL, FREQ_SHIFT=_FREQ_SHIFT, BITS_SHIFT=_BITS_SHIFT,
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return values, (failed.cpu().numpy() != 0).reshape(runs, LANES).any(axis=1)


class _Arrays(NamedTuple):
    """Blocks as the kernels take them, one after the other; first as NumPy arrays, then as tensors.

    Attributes:
        models: int64 ``[blocks, 16]``: first coordinate, coordinates, width, column, base, rank, whether it is scaled,
            rows, where its scales or factors begin in ``side``, and seven bounds.
        table_of_cell: uint8 ``[blocks, 256]``.
        side: int8, of each block its row and column scales, then its row and column factors.
        runs: int64 ``[sub-blocks, 7]``: first coordinate, coordinates, first word, words, first byte of extra bits,
            extra bits, and first table of the block.
        states: int32 ``[sub-blocks, 16]``, of the lanes.
        words: int16.
        extras: uint8, extra bits; those of each sub-block begin at a byte.
        tokens: uint8 ``[tables, 4096]``, the token of each slot.
        spans: int32 ``[tables, 64]``.
    """

    models: Any
    table_of_cell: Any
    side: Any
    runs: Any
    states: Any
    words: Any
    extras: Any
    tokens: Any
    spans: Any


def _gather(layouts: Sequence[Layout]) -> _Arrays:
    # Never empty, because an empty tensor has no address.
    side, words, extras = [np.zeros(1, np.int8)], [np.zeros(2, np.uint8)], [np.zeros(0, np.uint8)]
    models, cells, runs, states = [], [], [], []
    coordinate, side_at, word, byte, table = 0, 1, 1, 0, 0
    for layout in layouts:
        contexts = layout.model.contexts
        shaped = contexts.scaled or contexts.rank > 0
        lines = contexts.row_scales, contexts.column_scales, contexts.row_factors, contexts.column_factors
        row = [coordinate, layout.n, *(contexts.grid if shaped else (1, 0)), contexts.base, contexts.rank]
        rows = max(contexts.row_scales.size, contexts.row_factors.shape[1])
        models.append([*row, int(contexts.scaled), rows, side_at, *contexts.bounds.tolist()])
        side += [line.reshape(-1) for line in lines]
        side_at += sum(line.size for line in lines)
        of_cell = layout.model.tables.of_cell
        cells.append(np.pad(of_cell, (0, MAX_CELLS - len(of_cell))))
        for number, (has_words, has_extras) in enumerate(layout.directory.tolist()):
            begin = number * layout.size
            count = min(layout.n - begin, layout.size)
            # No token takes more; below, these counts are small enough for 32 bits.
            if has_words > count or has_extras > LITERAL_BITS * count:
                raise _corrupt(number)
            runs.append([coordinate + begin, count, word, has_words, byte, has_extras, table])
            start, stop = int(layout.starts[number]) + STATE_BYTES, int(layout.starts[number + 1])
            bits_at = start + 2 * has_words
            states.append(layout.block[start - STATE_BYTES : start])
            words.append(layout.block[start:bits_at])
            extras.append(layout.block[bits_at:stop])
            word, byte = word + has_words, byte + stop - bits_at
        coordinate += layout.n
        table += len(layout.model.tables.freqs)
    extras.append(np.zeros(_SPARE_BYTES, np.uint8))
    tokens, spans = _tables(np.concatenate([layout.model.tables.freqs for layout in layouts]))
    return _Arrays(
        models=np.array(models, np.int64),
        table_of_cell=np.stack(cells),
        side=np.concatenate(side),
        runs=np.array(runs, np.int64),
        states=np.concatenate(states).view("<i4").astype(np.int32, copy=False),
        words=np.concatenate(words).view("<i2").astype(np.int16, copy=False),
        extras=np.concatenate(extras),
        tokens=tokens,
        spans=spans,
    )


def _tables(freqs: npt.NDArray[np.uint16]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Tokens of slots, and spans of tokens.

    They are a quarter of what the CPU's tables take: all of a block's lie in a multiprocessor's first cache.
    """
    token = np.arange(TOKENS, dtype=np.uint8)
    of_slot = np.repeat(np.tile(token, len(freqs)), freqs.reshape(-1)).reshape(len(freqs), SLOTS)
    size = np.abs(np.arange(TOKENS) - MIDDLE)
    bits = np.where(size > NEAREST, size - FEWER_BITS, 0)
    bits[LITERAL] = LITERAL_BITS
    wide = freqs.astype(np.int32)
    first = np.cumsum(wide, axis=1, dtype=np.int32) - wide
    # Of a token that never occurs, the first slot may be one too many, but nobody asks.
    spans = first | wide << _FREQ_SHIFT | bits.astype(np.int32) << _BITS_SHIFT
    return of_slot, spans


def _corrupt(number: int) -> CorruptError:
    return CorruptError("block", f"its sub-block {number} does not decode")


def _kernel(function: Callable[..., None]) -> Any:
    """Have Triton compile a function when it is first launched."""
    return triton.jit(function)


@_kernel
def _classify(
    context: tl.tensor, models: tl.tensor, table_of_cell: tl.tensor, side: tl.tensor, lookup: tl.tensor,
    TILE: tl.constexpr, FIELDS: tl.constexpr, CELLS: tl.constexpr, SIZES: tl.constexpr,
    PLAIN_CLASSES: tl.constexpr, SCALED_CLASSES: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``lookup``, uint8 of each coordinate: its table, and 128 where its step is turned round.

    What :func:`maskreg.codec.contexts.classify` computes in 16 bits never leaves them, so 32 give the same.
    """
    block = tl.program_id(1)
    model = models + block * FIELDS
    first = tl.load(model)
    n = tl.load(model + 1).to(tl.int32)
    width = tl.load(model + 2).to(tl.int32)
    base = tl.load(model + 4).to(tl.int32)
    rank = tl.load(model + 5).to(tl.int32)
    scaled = tl.load(model + 6).to(tl.int32)
    rows = tl.load(model + 7).to(tl.int32)
    scales = side + tl.load(model + 8)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < n
    code = tl.load(context + first + i, mask=inside, other=0).to(tl.int32)
    place = tl.load(model + 3).to(tl.int32) + i
    row = place // width
    column = place - row * width
    if scaled > 0:
        row_scale = tl.load(scales + row, mask=inside, other=0).to(tl.int32)
        column_scale = tl.load(scales + rows + column, mask=inside, other=0).to(tl.int32)
        level = ((code >> 6) & 0x1FE) - base - row_scale - column_scale
        cell = tl.minimum(tl.maximum(level, 0), SCALED_CLASSES - 1)
    else:
        cell = tl.minimum(tl.maximum(((code >> 7) & 0xFF) - (base >> 1), 0), PLAIN_CLASSES - 1)
    turned = tl.zeros([TILE], tl.int32)
    if rank > 0:
        row_factors = scales + scaled * (rows + width)
        column_factors = row_factors + rank * rows
        guess = tl.zeros([TILE], tl.int32)
        component = 0
        while component < rank:
            one = tl.load(row_factors + component * rows + row, mask=inside, other=0).to(tl.int32)
            other = tl.load(column_factors + component * width + column, mask=inside, other=0).to(tl.int32)
            guess += one * other
            component += 1
        reached = tl.zeros([TILE], tl.int32)
        for bound in range(SIZES - 1):
            reached += (tl.abs(guess) >= tl.load(model + 9 + bound).to(tl.int32)).to(tl.int32)
        cell = cell * SIZES + reached
        turned = ((guess ^ code) >> 31) & 1
    table = tl.load(table_of_cell + block * CELLS + cell).to(tl.int32)
    tl.store(lookup + first + i, (table | turned << 7).to(tl.uint8), mask=inside)


@_kernel
def _decode(
    context: tl.tensor, lookup: tl.tensor, runs: tl.tensor, run_count: tl.tensor, states: tl.tensor,
    words: tl.tensor, extras: tl.tensor, tokens: tl.tensor, spans: tl.tensor, values: tl.tensor, failed: tl.tensor,
    WARP: tl.constexpr, FIELDS: tl.constexpr, LANES: tl.constexpr, TABLE_BITS: tl.constexpr, TOKENS: tl.constexpr,
    LOWEST_STATE: tl.constexpr, MIDDLE: tl.constexpr, LITERAL: tl.constexpr,
    FREQ_SHIFT: tl.constexpr, BITS_SHIFT: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``values``, and ``failed`` with a number of each lane, 0 when its sub-block was decoded to its very end."""
    thread = tl.program_id(0) * WARP + tl.arange(0, WARP)
    lane, fields = thread % LANES, runs + thread // LANES * FIELDS
    is_lane = thread < LANES * run_count
    first = tl.load(fields, mask=is_lane, other=0) + lane
    # How many coordinates there are from the lane's first on.
    left = tl.load(fields + 1, mask=is_lane, other=0).to(tl.int32) - lane
    own_words = words + tl.load(fields + 2, mask=is_lane, other=0)
    word_count = tl.load(fields + 3, mask=is_lane, other=0).to(tl.int32)
    own_extras = extras + tl.load(fields + 4, mask=is_lane, other=0)
    bit_count = tl.load(fields + 5, mask=is_lane, other=0).to(tl.int32)
    table = tl.load(fields + 6, mask=is_lane, other=0).to(tl.int32)
    state = tl.load(states + thread, mask=is_lane, other=LOWEST_STATE).to(tl.uint32, bitcast=True)
    word = tl.zeros([WARP], tl.int32)
    bit = tl.zeros([WARP], tl.int32)
    look = tl.load(lookup + first, mask=left > 0, other=0).to(tl.int32)
    code = tl.load(context + first, mask=left > 0, other=0).to(tl.int32)
    most = tl.max(left, axis=0)
    at = 0
    while at < most:
        active = at < left
        # Asked for a step ahead, these are here when they are needed.
        ahead = at + LANES
        next_look = tl.load(lookup + first + ahead, mask=ahead < left, other=0).to(tl.int32)
        next_code = tl.load(context + first + ahead, mask=ahead < left, other=0).to(tl.int32)

        row = table + (look & 0x7F)
        slot = (state & ((1 << TABLE_BITS) - 1)).to(tl.int32)
        token = tl.load(tokens + (row << TABLE_BITS) + slot, mask=active, other=MIDDLE).to(tl.int32)
        span = tl.load(spans + row * TOKENS + token, mask=active, other=0)
        freq = (span >> FREQ_SHIFT) & ((1 << (BITS_SHIFT - FREQ_SHIFT)) - 1)
        offset = slot - (span & ((1 << FREQ_SHIFT) - 1))
        taken = freq.to(tl.uint32) * (state >> TABLE_BITS) + offset.to(tl.uint32)
        bits = span >> BITS_SHIFT

        # One sum for both streams: at most a word is due for each lane, and 16 bits.
        due = active & (taken < LOWEST_STATE)
        needs = due.to(tl.int32) | bits << 16
        by_run = tl.reshape(needs, [WARP // LANES, LANES])
        before = tl.reshape(tl.cumsum(by_run, axis=1), [WARP]) - needs
        total = tl.sum(by_run, axis=1, keep_dims=True)
        total = tl.reshape(tl.broadcast_to(total, [WARP // LANES, LANES]), [WARP])
        word_at = word + (before & 0xFFFF)
        refill = tl.load(own_words + word_at, mask=due & (word_at < word_count), other=0)
        refilled = taken << 16 | (refill.to(tl.int32) & 0xFFFF).to(tl.uint32)
        state = tl.where(active, tl.where(due, refilled, taken), state)

        bit_at = bit + (before >> 16)
        far = (bits > 0) & (bit_at + bits <= bit_count)
        byte = own_extras + (bit_at >> 3)
        three = tl.load(byte, mask=far, other=0).to(tl.int32)
        three |= tl.load(byte + 1, mask=far, other=0).to(tl.int32) << 8
        three |= tl.load(byte + 2, mask=far, other=0).to(tl.int32) << 16
        extra = (three >> (bit_at & 7)) & ((1 << bits) - 1)
        length = token - MIDDLE
        size = (1 << bits) + extra + 1
        length = tl.where(bits > 0, tl.where(length < 0, -size, size), length)
        length = tl.where(look >= 0x80, -length, length)
        value = (code & 0x8000) | (((code & 0x7FFF) + length) & 0x7FFF)
        value = tl.where(token == LITERAL, extra, value)
        tl.store(values + first + at, value.to(tl.int16), mask=active)
        word += total & 0xFFFF
        bit += total >> 16
        look = next_look
        code = next_code
        at = ahead
    wrong = (state != LOWEST_STATE) | (word != word_count) | (bit != bit_count)
    tl.store(failed + thread, wrong.to(tl.int32), mask=is_lane)
