"""Decoding on the GPU that holds the tensors: all sub-blocks of many blocks at once, with the integers of the CPU.

Two kernels, launched once each for all coded blocks:

1. ``classify_kernel``: one program per 1,024 coordinates of a block. Every coordinate is independent; its cell is
   looked up, and a byte remains of it: the number of its table, and 128 where its ULP step is flipped.
2. ``decode_kernel``: one program per warp of 32 threads, which decodes two sub-blocks; a thread is a lane. The 16 lanes
   of a sub-block advance together, a token each, through a loop of n / 16 rounds. Which of the next words and extra
   bits are whose is told by prefix sums over the lanes: each lane skips what the lanes before it take.

       words due in a round, lane by lane   0 1 0 0 1 1 0 ...
       words of the lanes before            0 0 1 1 1 2 3 ...    so lane 4 takes word 1 of this round, lane 5 word 2

Parallelism comes from the number of sub-blocks: a launch of 256 blocks has up to 4,096.

Headers, models and directories are read and checked on the CPU, by :class:`maskreg.codec.layout.Layout`. Beyond that
the kernels trust nothing: for any bytes, they read and write inside their arrays and take bounded time.

This module alone imports Triton, and :mod:`maskreg.codec.step2` alone imports it, when there is something to decode.
With ``TRITON_INTERPRET=1`` in the environment Triton runs the kernels on the CPU, slowly; tests use that.

Blocks in which few coordinates move have a kernel of their own, ``movers_kernel``. A program, one warp, takes a
sub-block: the state of its coder, and 512 coordinates at a time. A draw from the state says after how much hazard the
next mover comes (:mod:`maskreg.codec.movers`), and the sums of the tile's hazards where that is::

    sums of hazards      3  6  9 3009 3012 ...      goal 12: the fourth coordinate is the first to reach it: it moves
    no sum reaches it                               the goal lies in a later tile, and this one is passed over
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from maskreg.codec.contexts import MAX_CELLS, PLAIN_CLASSES, SCALED_CLASSES, SIZES, Contexts
from maskreg.codec.layout import LANES, LOWEST_STATE, STATE_BYTES, Layout
from maskreg.codec.movers import BINADES, BINADES_OF_STEP, CLASSES, LIMIT, POWERS, SHARE_BITS, SURVIVAL_BITS, survival
from maskreg.codec.movers import STATE_BYTES as SPARSE_STATE_BYTES
from maskreg.codec.tables import SLOTS, TABLE_BITS
from maskreg.codec.ulp_steps import FEWER_BITS, LITERAL, LITERAL_BITS, MIDDLE, NEAREST, TOKENS
from maskreg.errors import CorruptError
from maskreg.tensors.bus import down, up

if TYPE_CHECKING:
    from maskreg.codec.sparse import SparseLayout

_TILE = 1024  # coordinates per program of the first kernel
PROGRAM_LANES = 32  # lanes per program of the second kernel: one for each thread of a warp
_SPARE_BYTES = 4  # zeros behind the last extra bits, so that three bytes can be read wherever some begin

_FREQ_SHIFT, _BITS_SHIFT = 12, 25
"""A token's entry: its first slot, then from these bits on its frequency (up to 4,096) and number of extra bits."""

_LOCK = threading.Lock()  # so that nothing is compiled twice; and Triton's interpreter is not thread-safe


def decode_layouts(contexts: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """Decode blocks in one launch, on the device where their contexts are; int16 ``[n]`` of each block.

    Besides the results, that takes three bytes of device memory per coordinate, and the blocks.
    """
    return _split(contexts, layouts, *launch(contexts, layouts))


def _split(
    contexts: Sequence[torch.Tensor],
    layouts: Sequence[Layout] | Sequence[SparseLayout],
    values: torch.Tensor,
    failed: npt.NDArray[np.bool_],
) -> list[torch.Tensor]:
    """The values of each block, if none is damaged."""
    if failed.any():
        numbers = [number for layout in layouts for number in range(len(layout.starts) - 1)]
        raise _corrupt(numbers[int(failed.argmax())])
    return list(torch.split(values, [context.numel() for context in contexts]))


def launch(contexts: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """Values of all blocks, one after the other, and which of all their sub-blocks are damaged."""
    context = contexts[0].contiguous() if len(contexts) == 1 else torch.cat(list(contexts))
    arrays = gather(layouts)
    at = _Arrays(*(up(array, context.device, "blocks") for array in arrays))
    tokens, entries = _tables(at.freqs)
    count = len(arrays.sub_blocks)
    lookup, values = torch.empty_like(context, dtype=torch.uint8), torch.empty_like(context)
    failed = torch.empty(count * LANES, dtype=torch.int32, device=context.device)
    tiles = -(-max(layout.n for layout in layouts) // _TILE)
    # Triton launches on the current device, not on the tensors'.
    with _LOCK, torch.cuda.device(context.device) if context.is_cuda else nullcontext():
        classify_kernel[(tiles, len(layouts))](
            context, at.models, at.table_of_cell, at.side, lookup,
            TILE=_TILE, FIELDS=arrays.models.shape[1], CELLS=MAX_CELLS, SIZES=SIZES,
            PLAIN_CLASSES=PLAIN_CLASSES, SCALED_CLASSES=SCALED_CLASSES, enable_fp_fusion=False,
        )  # fmt: skip
        decode_kernel[(-(-count * LANES // PROGRAM_LANES),)](
            context, lookup, at.sub_blocks, count, at.states, at.words, at.extras, tokens, entries,
            values, failed,
            WARP=PROGRAM_LANES, FIELDS=arrays.sub_blocks.shape[1], LANES=LANES, TABLE_BITS=TABLE_BITS, TOKENS=TOKENS,
            LOWEST_STATE=LOWEST_STATE, MIDDLE=MIDDLE, LITERAL=LITERAL, FREQ_SHIFT=_FREQ_SHIFT, BITS_SHIFT=_BITS_SHIFT,
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return values, (down(failed, "outcomes") != 0).reshape(count, LANES).any(axis=1)


class _Arrays(NamedTuple):
    """Blocks as the kernels take them, concatenated; first as NumPy arrays, then as tensors.

    Attributes:
        models: int64 ``[blocks, 16]``: first coordinate, coordinates, width, column, base, rank, whether there are
            scales, rows, where scales or factors begin in ``side``, and seven bounds.
        table_of_cell: uint8 ``[blocks, 256]``.
        side: int8, of each block its row and column scales, then its row and column factors.
        sub_blocks: int64 ``[sub-blocks, 7]``: first coordinate, coordinates, first word, words, first byte of extra
            bits, extra bits, and first table of the block.
        states: int32 ``[sub-blocks, 16]``, of the lanes.
        words: int16.
        extras: uint8, extra bits; each sub-block's begin at a byte.
        freqs: int16 ``[tables, 64]``, slots of each token.
    """

    models: Any
    table_of_cell: Any
    side: Any
    sub_blocks: Any
    states: Any
    words: Any
    extras: Any
    freqs: Any


def gather(layouts: Sequence[Layout]) -> _Arrays:
    """Put what the kernels read of blocks into arrays."""
    # None is ever empty, because an empty tensor has no address.
    side, words, extras = [np.zeros(1, np.int8)], [np.zeros(2, np.uint8)], [np.zeros(0, np.uint8)]
    models, cells, sub_blocks, states = [], [], [], []
    coordinate, side_at, word, byte, table = 0, 1, 1, 0, 0
    for layout in layouts:
        contexts, tables = layout.model.contexts, layout.model.tables
        models.append([coordinate, layout.n, *_model_row(contexts, side_at)])
        lines = contexts.row_scales, contexts.column_scales, contexts.row_factors, contexts.column_factors
        side += [line.reshape(-1) for line in lines]
        side_at += sum(line.size for line in lines)
        cells.append(np.pad(tables.of_cell, (0, MAX_CELLS - len(tables.of_cell))))
        for number, (word_count, bit_count) in enumerate(layout.directory.tolist()):
            begin = number * layout.size
            n = min(layout.n - begin, layout.size)
            # No token takes more than that. Below, these counts are small enough for 32 bits.
            if word_count > n or bit_count > LITERAL_BITS * n:
                raise _corrupt(number)
            sub_blocks.append([coordinate + begin, n, word, word_count, byte, bit_count, table])
            start, stop = int(layout.starts[number]) + STATE_BYTES, int(layout.starts[number + 1])
            bits_at = start + 2 * word_count
            states.append(layout.block[start - STATE_BYTES : start])
            words.append(layout.block[start:bits_at])
            extras.append(layout.block[bits_at:stop])
            word, byte = word + word_count, byte + stop - bits_at
        coordinate += layout.n
        table += len(tables.freqs)
    extras.append(np.zeros(_SPARE_BYTES, np.uint8))
    freqs = np.concatenate([layout.model.tables.freqs for layout in layouts])
    return _Arrays(
        models=np.array(models, np.int64),
        table_of_cell=np.stack(cells),
        side=np.concatenate(side),
        sub_blocks=np.array(sub_blocks, np.int64),
        states=np.concatenate(states).view("<i4").astype(np.int32, copy=False),
        words=np.concatenate(words).view("<i2").astype(np.int16, copy=False),
        extras=np.concatenate(extras),
        freqs=freqs.astype(np.int16),
    )


def _model_row(contexts: Contexts, side_at: int) -> list[int]:
    """A row of ``models`` from the width on."""
    # Without scales and factors the grid does not matter, and can be wider than 32 bits allow.
    width, column = contexts.grid if contexts.scaled or contexts.rank else (1, 0)
    rows = max(contexts.row_scales.size, contexts.row_factors.shape[1])
    scaled = int(contexts.scaled)
    return [width, column, contexts.base, contexts.rank, scaled, rows, side_at, *contexts.bounds.tolist()]


def _tables(freqs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The token of each slot, uint8 ``[tables * 4096]``, and the entry of each token, int32 ``[tables, 64]``.

    Made on the device, as frequencies are a thirtieth of that. Two lookups instead of the CPU's one, but a quarter of
    the memory: a block's tables fit a multiprocessor's first cache, which the CPU's of 16 KiB each would not.
    """
    wide = freqs.to(torch.int32)
    token = torch.arange(TOKENS, dtype=torch.int32, device=freqs.device)
    of_slot = torch.repeat_interleave(
        token.to(torch.uint8).repeat(len(freqs)), wide.reshape(-1), output_size=len(freqs) * SLOTS
    )
    size = (token - MIDDLE).abs()
    bits = torch.where(size > NEAREST, size - FEWER_BITS, 0)
    bits = torch.where(token == LITERAL, LITERAL_BITS, bits)
    # Of a token without slots this can be 4,096, one bit too many; it is never looked up.
    first = torch.cumsum(wide, 1, dtype=torch.int32) - wide
    return of_slot, first | wide << _FREQ_SHIFT | bits << _BITS_SHIFT


def _corrupt(number: int) -> CorruptError:
    return CorruptError("block", f"its sub-block {number} does not decode")


def _kernel(function: Callable[..., None]) -> Any:
    """Have Triton compile a function when it is first launched."""
    return triton.jit(function)


# Triton's kernels take pointers, integers and compile-time constants one by one; what belongs together is grouped in
# _Arrays, and "models" and "sub_blocks" hold a row of numbers for each.


@_kernel
def classify_kernel(
    context: tl.tensor, models: tl.tensor, table_of_cell: tl.tensor, side: tl.tensor, lookup: tl.tensor,
    TILE: tl.constexpr, FIELDS: tl.constexpr, CELLS: tl.constexpr, SIZES: tl.constexpr,
    PLAIN_CLASSES: tl.constexpr, SCALED_CLASSES: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``lookup``, uint8 of each coordinate: its table, and 128 where its ULP step is flipped.

    program (p, block): coordinates i = 1024 p ... 1024 p + 1023 of the block
        row, column = divmod(column of the first + i, width)
        cell from exponent and scales; prediction = sum over components; cell = 8 * cell + bounds reached
        lookup[i] = table_of_cell[cell] | (prediction and weight differ in sign) << 7

    The CPU's kernel does the same in 16 bits, which are never exceeded, so 32 agree.
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
    position = tl.load(model + 3).to(tl.int32) + i
    row = position // width
    column = position - row * width
    if scaled > 0:
        row_scale = tl.load(scales + row, mask=inside, other=0).to(tl.int32)
        column_scale = tl.load(scales + rows + column, mask=inside, other=0).to(tl.int32)
        level = ((code >> 6) & 0x1FE) - base - row_scale - column_scale
        cell = tl.minimum(tl.maximum(level, 0), SCALED_CLASSES - 1)
    else:
        cell = tl.minimum(tl.maximum(((code >> 7) & 0xFF) - (base >> 1), 0), PLAIN_CLASSES - 1)
    flipped = tl.zeros([TILE], tl.int32)
    if rank > 0:
        row_factors = scales + scaled * (rows + width)
        column_factors = row_factors + rank * rows
        predicted = tl.zeros([TILE], tl.int32)
        component = 0
        while component < rank:
            row_factor = tl.load(row_factors + component * rows + row, mask=inside, other=0).to(tl.int32)
            column_factor = tl.load(column_factors + component * width + column, mask=inside, other=0).to(tl.int32)
            predicted += row_factor * column_factor
            component += 1
        reached = tl.zeros([TILE], tl.int32)
        for bound in range(SIZES - 1):
            reached += (tl.abs(predicted) >= tl.load(model + 9 + bound).to(tl.int32)).to(tl.int32)
        cell = cell * SIZES + reached
        flipped = ((predicted ^ code) >> 31) & 1
    table = tl.load(table_of_cell + block * CELLS + cell).to(tl.int32)
    tl.store(lookup + first + i, (table | flipped << 7).to(tl.uint8), mask=inside)


@_kernel
def _before_and_total(needs: tl.tensor, WARP: tl.constexpr, LANES: tl.constexpr) -> tl.tensor:
    """What the lanes before each lane of its sub-block need, and what all of them need."""
    by_sub_block = tl.reshape(needs, [WARP // LANES, LANES])
    before = tl.reshape(tl.cumsum(by_sub_block, axis=1), [WARP]) - needs
    total = tl.sum(by_sub_block, axis=1, keep_dims=True)
    return before, tl.reshape(tl.broadcast_to(total, [WARP // LANES, LANES]), [WARP])


@_kernel
def _word_at(words: tl.tensor, position: tl.tensor, count: tl.tensor, due: tl.tensor) -> tl.tensor:
    """The words that are due; 0 for lanes that need none, and beyond the end."""
    word = tl.load(words + position, mask=due & (position < count), other=0)
    return (word.to(tl.int32) & 0xFFFF).to(tl.uint32)


@_kernel
def _bits_at(extras: tl.tensor, start: tl.tensor, count: tl.tensor, bits: tl.tensor) -> tl.tensor:
    """As many extra bits as each lane needs; 0 for lanes that need none, and beyond the end."""
    far = (bits > 0) & (start + bits <= count)
    byte = extras + (start >> 3)
    three = tl.load(byte, mask=far, other=0).to(tl.int32)
    three |= tl.load(byte + 1, mask=far, other=0).to(tl.int32) << 8
    three |= tl.load(byte + 2, mask=far, other=0).to(tl.int32) << 16
    return (three >> (start & 7)) & ((1 << bits) - 1)


@_kernel
def _value(
    code: tl.tensor, flipped: tl.tensor, token: tl.tensor, extra: tl.tensor, bits: tl.tensor,
    MIDDLE: tl.constexpr, LITERAL: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Values from the source's codes, tokens and extra bits; see :mod:`maskreg.codec.ulp_steps`."""
    step = token - MIDDLE
    size = (1 << bits) + extra + 1
    step = tl.where(bits > 0, tl.where(step < 0, -size, size), step)
    step = tl.where(flipped, -step, step)
    value = (code & 0x8000) | (((code & 0x7FFF) + step) & 0x7FFF)
    return tl.where(token == LITERAL, extra, value)


@_kernel
def decode_kernel(
    context: tl.tensor, lookup: tl.tensor, sub_blocks: tl.tensor, count: tl.tensor, states: tl.tensor,
    words: tl.tensor, extras: tl.tensor, tokens: tl.tensor, entries: tl.tensor, values: tl.tensor, failed: tl.tensor,
    WARP: tl.constexpr, FIELDS: tl.constexpr, LANES: tl.constexpr, TABLE_BITS: tl.constexpr, TOKENS: tl.constexpr,
    LOWEST_STATE: tl.constexpr, MIDDLE: tl.constexpr, LITERAL: tl.constexpr,
    FREQ_SHIFT: tl.constexpr, BITS_SHIFT: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``values``, and ``failed`` with a number per lane, 0 when its sub-block was decoded to its very end.

    thread: lane l of a sub-block; state x, position of the next word and extra bit, both the same in all its lanes
    for at in 0, 16, 32, ...: coordinate at + l
        token = tokens[table, x & 4095];  f, g, bits = entries[table, token]
        x = f * (x >> 12) + (x & 4095) - g;  due = x < 2^16
        before, total = prefix sums over the lanes of (due, bits)
        x = due ? x << 16 | words[word + before] : x
        extra = bits of extras from bit + before on
        values[at + l] = value of source, token, extra
        word, bit += total
    """
    thread = tl.program_id(0) * WARP + tl.arange(0, WARP)
    lane, fields = thread % LANES, sub_blocks + thread // LANES * FIELDS
    is_lane = thread < LANES * count
    first = tl.load(fields, mask=is_lane, other=0) + lane
    # Coordinates from the lane's first on.
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
        # Loaded a round ahead, so that memory's latency passes while this round is decoded.
        ahead = at + LANES
        next_look = tl.load(lookup + first + ahead, mask=ahead < left, other=0).to(tl.int32)
        next_code = tl.load(context + first + ahead, mask=ahead < left, other=0).to(tl.int32)

        row = table + (look & 0x7F)
        slot = (state & ((1 << TABLE_BITS) - 1)).to(tl.int32)
        token = tl.load(tokens + (row << TABLE_BITS) + slot, mask=active, other=MIDDLE).to(tl.int32)
        entry = tl.load(entries + row * TOKENS + token, mask=active, other=0)
        freq = (entry >> FREQ_SHIFT) & ((1 << (BITS_SHIFT - FREQ_SHIFT)) - 1)
        offset = slot - (entry & ((1 << FREQ_SHIFT) - 1))
        taken = freq.to(tl.uint32) * (state >> TABLE_BITS) + offset.to(tl.uint32)
        bits = entry >> BITS_SHIFT

        # One sum for both streams: 16 lanes need at most 16 words, in the low half, and 256 bits, in the high half.
        due = active & (taken < LOWEST_STATE)
        before, total = _before_and_total(due.to(tl.int32) | bits << 16, WARP, LANES)
        refilled = taken << 16 | _word_at(own_words, word + (before & 0xFFFF), word_count, due)
        state = tl.where(active, tl.where(due, refilled, taken), state)

        extra = _bits_at(own_extras, bit + (before >> 16), bit_count, bits)
        value = _value(code, look >= 0x80, token, extra, bits, MIDDLE, LITERAL)
        tl.store(values + first + at, value.to(tl.int16), mask=active)
        word += total & 0xFFFF
        bit += total >> 16
        look = next_look
        code = next_code
        at = ahead
    wrong = (state != LOWEST_STATE) | (word != word_count) | (bit != bit_count)
    tl.store(failed + thread, wrong.to(tl.int32), mask=is_lane)


_SPAN = 512  # coordinates whose hazards are added up at once
_COARSE = LIMIT // 64  # survivals that are compared at once: of every 64th hazard


def decode_sparse_layouts(contexts: Sequence[torch.Tensor], layouts: Sequence[SparseLayout]) -> list[torch.Tensor]:
    """Decode blocks in one launch, on the device where their contexts are; int16 ``[n]`` of each block."""
    return _split(contexts, layouts, *launch_sparse(contexts, layouts))


def launch_sparse(
    contexts: Sequence[torch.Tensor], layouts: Sequence[SparseLayout]
) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """Values of all blocks, one after the other, and which of all their sub-blocks are damaged."""
    device = contexts[0].device
    context = torch.cat(list(contexts))
    values = context.clone()
    sub_blocks, models, words = _gather_sparse([context.numel() for context in contexts], layouts)
    at = [up(array, device, "blocks") for array in (sub_blocks, models, words)]
    failed = torch.empty(len(sub_blocks), dtype=torch.int32, device=device)
    with _LOCK, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        movers_kernel[(len(sub_blocks),)](
            context, *at, _survivals(device), values, failed,
            TILE=_SPAN, FIELDS=sub_blocks.shape[1], MODEL_FIELDS=models.shape[1], CLASSES=CLASSES, COARSE=_COARSE,
            LIMIT=LIMIT, SURVIVAL_BITS=SURVIVAL_BITS, LEAST_SURVIVAL=survival(LIMIT), SHARE_BITS=SHARE_BITS,
            BINADES=BINADES, BINADES_OF_STEP=BINADES_OF_STEP, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return values, down(failed, "outcomes") != 0


def _gather_sparse(
    sizes: Sequence[int], layouts: Sequence[SparseLayout]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """What the kernel takes of all blocks: sub-blocks, models and words.

    The row of a sub-block has its first coordinate, coordinates, first word, words, block, and state. The row of a
    block has hazards and shares by class, longer and top shares by binade, and the exponent of the first class.
    """
    sub_blocks, models, words = [], [], [np.zeros(1, np.int32)]
    coordinate, word = 0, 1
    for block, (n, layout) in enumerate(zip(sizes, layouts, strict=True)):
        hazards = layout.hazards
        models.append(np.concatenate([*hazards[1:], hazards[:1]]))
        for number, start in enumerate(layout.starts[:-1].tolist()):
            begin, stop = number * layout.size, int(layout.starts[number + 1])
            state = int(layout.block[start : start + SPARSE_STATE_BYTES].view("<i8")[0])
            own = layout.block[start + SPARSE_STATE_BYTES : stop].view("<i4")
            sub_blocks.append([coordinate + begin, min(n - begin, layout.size), word, own.size, block, state])
            words.append(own)
            word += own.size
        coordinate += n
    return np.array(sub_blocks, np.int64), np.array(models, np.int32), np.concatenate(words).astype(np.int32)


@cache
def _survivals(device: torch.device) -> torch.Tensor:
    """int64 ``[1024 + 192]``: survivals of every 64th hazard, and the powers that all are made of; once per device."""
    coarse = [survival(64 * number) for number in range(_COARSE)]
    return up(np.concatenate([np.array(coarse, np.int64), POWERS.astype(np.int64)]), device, "constants")


@_kernel
def _survival(hazard: tl.tensor, table: tl.tensor, COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr) -> tl.tensor:
    """:func:`maskreg.codec.movers.survival`, below 2^28, or 2^28 for a hazard of 0."""
    powers = table + COARSE
    coarse = tl.load(powers + ((hazard >> 6) & 127))
    fine = tl.load(powers + 128 + (hazard & 63))
    return (coarse * fine) >> (62 - SURVIVAL_BITS + (hazard >> 13))


@_kernel
def _goal(number: tl.tensor, table: tl.tensor, COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr) -> tl.tensor:
    """The least hazard whose survival is no more than a number: the 64 that it lies among, then which of them."""
    above = tl.load(table + tl.arange(0, COARSE)) > number
    first = 64 * (tl.sum(above.to(tl.int64), axis=0) - 1)
    among = _survival(first + tl.arange(0, 64), table, COARSE, SURVIVAL_BITS) > number
    return first + tl.sum(among.to(tl.int64), axis=0)


@_kernel
def _taken(state: tl.tensor, start: tl.tensor, freq: tl.tensor, bits: tl.tensor) -> tl.tensor:
    """The state after taking [start, start + freq) of 2^bits, before a word is appended."""
    shift = bits.to(tl.uint64)
    low = state - ((state >> shift) << shift)
    return freq.to(tl.uint64) * (state >> shift) + low - start.to(tl.uint64)


@_kernel
def _word(state: tl.tensor, words: tl.tensor, word: tl.tensor, count: tl.tensor) -> tl.tensor:
    """The state with a word appended, if it is due; 0 beyond the end."""
    due = state < (1 << 32)
    appended = tl.load(words + word, mask=due & (word < count), other=0).to(tl.uint32, bitcast=True).to(tl.uint64)
    return tl.where(due, (state << 32) | appended, state), word + due.to(tl.int32)


@_kernel
def _interval(
    sums: tl.tensor, hazard: tl.tensor, here: tl.tensor, reached: tl.tensor, waits: tl.tensor, number: tl.tensor,
    share: tl.tensor, table: tl.tensor,
    COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr, LIMIT: tl.constexpr, LEAST_SURVIVAL: tl.constexpr,
    SHARE_BITS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The numbers of a mover, or of a wait that goes on: the first, how many; the mover's sum; if it moves further."""
    after = tl.sum(tl.where(here, sums, 0), axis=0).to(tl.int64)
    own = tl.sum(tl.where(here, hazard, 0), axis=0).to(tl.int64)
    low = _survival(tl.minimum(after - reached, LIMIT), table, COARSE, SURVIVAL_BITS)
    high = _survival(tl.maximum(after - own - reached, 0), table, COARSE, SURVIVAL_BITS)
    highest = tl.maximum(((high - low) * share) >> SHARE_BITS, tl.minimum(share, 1))
    further = number >= high - highest
    start = tl.where(further, high - highest, low)
    freq = tl.where(further, highest, high - low - highest)
    return tl.where(waits, 0, start), tl.where(waits, LEAST_SURVIVAL, freq), after, further & (waits == 0)


@_kernel
def _end(
    number: tl.tensor, longer: tl.tensor, BINADES: tl.constexpr, BINADES_OF_STEP: tl.constexpr, SHARE_BITS: tl.constexpr
) -> tl.tensor:
    """How a step ends: in which binade, the last for a literal; with which top bit; and the numbers that say so.

    ``longer``: the longer shares from the first binade above the mover's class on; the top shares are behind all.
    """
    binade, going = number * 0 + 1, number * 0 + 1
    at, left = number * 0, number * 0 + (1 << SHARE_BITS)
    ended, top = number * 0, number * 0
    while going > 0:
        on = (left.to(tl.int64) * tl.load(longer + binade - 1) >> SHARE_BITS).to(tl.int32)
        on = tl.maximum(2 * (BINADES_OF_STEP - binade) - 1, tl.minimum(on, left - 2))
        ended = left - on
        top = (ended.to(tl.int64) * tl.load(longer + BINADES + binade - 1) >> SHARE_BITS).to(tl.int32)
        top = tl.maximum(1, tl.minimum(top, ended - 1))
        further = (number >= at + ended).to(tl.int32)
        at += further * ended
        left = tl.where(further > 0, on, left)
        binade += further
        going = further * (binade < BINADES_OF_STEP).to(tl.int32)
    literal = binade == BINADES_OF_STEP
    has_top = (number >= at + ended - top) & (literal == 0)
    start = at + tl.where(has_top, ended - top, 0)
    return binade, has_top.to(tl.int32), start, tl.where(literal, left, tl.where(has_top, top, ended - top))


@_kernel
def _step(
    source: tl.tensor, negative: tl.tensor, further: tl.tensor, longer: tl.tensor, state: tl.tensor, words: tl.tensor,
    word: tl.tensor, count: tl.tensor,
    BINADES: tl.constexpr, BINADES_OF_STEP: tl.constexpr, SHARE_BITS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A mover's value, by one ULP unless it moves further; and the state and words after it."""
    length = negative * 0 + 1
    literal = negative * 0
    if further:
        number = (state & 0xFFFF).to(tl.int32)
        binade, top, start, freq = _end(number, longer, BINADES, BINADES_OF_STEP, SHARE_BITS)
        state, word = _word(_taken(state, start, freq, negative * 0 + 16), words, word, count)
        literal = (binade == BINADES_OF_STEP).to(tl.int32)
        plain = tl.where(literal > 0, 16, binade - 1)
        low = (state & ((1 << plain) - 1).to(tl.uint64)).to(tl.int32)
        state, word = _word(_taken(state, low, negative * 0 + 1, plain), words, word, count)
        length = tl.where(literal > 0, low, ((2 + top) << plain) | low)
    step = tl.where(negative > 0, -length, length)
    moved = (source & 0x8000) | (((source & 0x7FFF) + step) & 0x7FFF)
    return tl.where(literal > 0, length, moved), state, word


@_kernel
def movers_kernel(
    context: tl.tensor, sub_blocks: tl.tensor, models: tl.tensor, words: tl.tensor, table: tl.tensor,
    values: tl.tensor, failed: tl.tensor,
    TILE: tl.constexpr, FIELDS: tl.constexpr, MODEL_FIELDS: tl.constexpr, CLASSES: tl.constexpr, COARSE: tl.constexpr,
    LIMIT: tl.constexpr, SURVIVAL_BITS: tl.constexpr, LEAST_SURVIVAL: tl.constexpr, SHARE_BITS: tl.constexpr,
    BINADES: tl.constexpr, BINADES_OF_STEP: tl.constexpr,
) -> None:  # fmt: skip
    """Write the movers into ``values``, which are the context's before; and ``failed``, 0 where a sub-block is whole.

    reached = 0, relative to the tile's first coordinate: the hazard up to the last mover, or where a wait went on
    for each tile: sums = hazards of its coordinates, added up
        while some sum reaches reached + goal of the state's number:
            a wait that goes on: reached += LIMIT
            else: the first such coordinate moves; decode its ULP step; reached = its sum
        reached -= sum of the whole tile
    take what is left
    """
    fields = sub_blocks + tl.program_id(0) * FIELDS
    first = tl.load(fields)
    n = tl.load(fields + 1).to(tl.int32)
    own_words = words + tl.load(fields + 2)
    count = tl.load(fields + 3).to(tl.int32)
    model = models + tl.load(fields + 4) * MODEL_FIELDS
    state = tl.load(fields + 5).to(tl.uint64, bitcast=True)
    longer = model + 2 * CLASSES
    lowest_class = tl.load(longer + 2 * BINADES)
    place = tl.arange(0, TILE)
    word, at, reached = count * 0, count * 0, first * 0
    while at < n:
        inside = at + place < n
        code = tl.load(context + first + at + place, mask=inside, other=0).to(tl.int32)
        of = tl.minimum(tl.maximum(((code >> 7) & 0xFF) - lowest_class, 0), CLASSES - 1)
        hazard = tl.where(inside, tl.load(model + of), 0)
        sums = tl.cumsum(hazard, axis=0)
        more = count * 0 + 1
        while more > 0:
            number = ((state >> 1) & ((1 << SURVIVAL_BITS) - 1)).to(tl.int64)
            waits = number < LEAST_SURVIVAL
            goal = reached + tl.where(waits, LIMIT, _goal(number, table, COARSE, SURVIVAL_BITS))
            before = tl.sum((sums < goal).to(tl.int32), axis=0)
            more = (before < TILE).to(tl.int32)
            if more > 0:
                negative, state = (state & 1).to(tl.int32), state >> 1
                here = place == before
                own_class = tl.sum(tl.where(here, of, 0), axis=0)
                share = tl.load(model + CLASSES + own_class).to(tl.int64)
                start, freq, after, further = _interval(
                    sums, hazard, here, reached, waits, number, share, table,
                    COARSE, SURVIVAL_BITS, LIMIT, LEAST_SURVIVAL, SHARE_BITS,
                )  # fmt: skip
                state, word = _word(_taken(state, start, freq, negative * 0 + SURVIVAL_BITS), own_words, word, count)
                reached = tl.where(waits, goal, after)
                source = tl.sum(tl.where(here, code, 0), axis=0)
                moves = (waits == 0).to(tl.int32)
                value, state, word = _step(
                    source, negative, further, longer + own_class, state, own_words, word, count,
                    BINADES, BINADES_OF_STEP, SHARE_BITS,
                )  # fmt: skip
                tl.store(values + first + at + before, value.to(tl.int16), mask=moves > 0)
        reached -= tl.sum(hazard, axis=0).to(tl.int64)
        at += TILE
    # The end: a sign that says nothing, and the hazard that is left.
    state = state >> 1
    rest = _survival(tl.minimum(tl.maximum(-reached, 0), LIMIT), table, COARSE, SURVIVAL_BITS)
    state, word = _word(_taken(state, rest * 0, rest, word * 0 + SURVIVAL_BITS), own_words, word, count)
    wrong = (state != (1 << 32)) | (word != count)
    tl.store(failed + tl.program_id(0), wrong.to(tl.int32))
