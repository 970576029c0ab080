"""Decoding blocks in which few coordinates move, on the GPU that holds the tensors: all sub-blocks of many at once.

A program, one warp, takes a sub-block: the state of its coder, and 512 coordinates at a time. A draw from the state
says after how much hazard the next mover comes (:mod:`maskreg.codec.movers`), and the sums of the tile's hazards where
that is::

    sums of hazards      3  6  9 3009 3012 ...      goal 12: the fourth coordinate is the first to reach it: it moves
    no sum reaches it                               the goal lies in a later tile, and this one is passed over

Adaptive chances are 16 bits each, with a count of up to 61 above them, and stay in the warp's registers.

The CPU reads and checks headers, models and directories. Beyond that the kernel trusts nothing: whatever the bytes say,
it reads and writes inside its arrays and takes bounded time. With ``TRITON_INTERPRET=1`` in the environment Triton runs
it on the CPU, slowly; tests use that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
import triton.language as tl

from maskreg.codec.movers import CHANCE_BITS, CLASSES, LIMIT, MOST_LONGER, POWERS, STATE_BYTES, SURVIVAL_BITS, survival
from maskreg.codec.ulp_steps import EXPONENTS
from maskreg.errors import CorruptError
from maskreg.tensors.bus import down, up

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.codec.sparse import SparseLayout

_TILE = 512  # coordinates whose hazards are added up at once
_COARSE = LIMIT // 64  # survivals that are compared at once: of every 64th hazard
_CHANCES = 1024  # room for all chances: of exponents, and of both lists of binades
_LOCK = threading.Lock()  # so that nothing is compiled twice; and Triton's interpreter is not thread-safe


def decode_sparse_layouts(contexts: Sequence[torch.Tensor], layouts: Sequence[SparseLayout]) -> list[torch.Tensor]:
    """Decode blocks in one launch, on the device where their contexts are.

    ``contexts``: int16 ``[n]`` of each block, all on one device.

    Returns int16 ``[n]`` of each block.
    """
    if not layouts:
        return []
    values, failed = launch_sparse(contexts, layouts)
    numbers = [number for layout in layouts for number in range(len(layout.starts) - 1)]
    if failed.any():
        raise CorruptError("block", f"its sub-block {numbers[int(failed.argmax())]} does not decode")
    return list(torch.split(values, [context.numel() for context in contexts]))


def launch_sparse(
    contexts: Sequence[torch.Tensor], layouts: Sequence[SparseLayout]
) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """Values of all blocks, one after the other, and which of all their sub-blocks are damaged."""
    device = contexts[0].device
    context = torch.cat(list(contexts))
    values = context.clone()
    sub_blocks, models, words = _gather([context.numel() for context in contexts], layouts)
    at = [up(array, device, "blocks") for array in (sub_blocks, models, words)]
    failed = torch.empty(len(sub_blocks), dtype=torch.int32, device=device)
    with _LOCK, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        _movers[(len(sub_blocks),)](
            context, *at, _table(device), values, failed,
            TILE=_TILE, FIELDS=sub_blocks.shape[1], MODEL_FIELDS=models.shape[1], CLASSES=CLASSES, COARSE=_COARSE,
            CHANCES=_CHANCES, LIMIT=LIMIT, SURVIVAL_BITS=SURVIVAL_BITS, LEAST_SURVIVAL=survival(LIMIT),
            CHANCE_BITS=CHANCE_BITS, MOST_LONGER=MOST_LONGER, EXPONENTS=EXPONENTS, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return values, down(failed, "outcomes") != 0


def _gather(
    sizes: Sequence[int], layouts: Sequence[SparseLayout]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """What the kernel takes of all blocks.

    Returns int64 ``[sub-blocks, 6]``, first coordinate, coordinates, first word, words, block, and state; int32
    ``[blocks, 18]``, hazards by class, the exponent of the first class, and that from which on movers move by one;
    int32, the words.
    """
    sub_blocks, models, words = [], [], [np.zeros(1, np.int32)]
    coordinate, word = 0, 1
    for block, (n, layout) in enumerate(zip(sizes, layouts, strict=True)):
        hazards = layout.hazards
        models.append([*hazards.by_class.tolist(), hazards.first, hazards.ones])
        for number, start in enumerate(layout.starts[:-1].tolist()):
            begin, stop = number * layout.size, int(layout.starts[number + 1])
            state = int(layout.block[start : start + STATE_BYTES].view("<i8")[0])
            own = layout.block[start + STATE_BYTES : stop].view("<i4")
            sub_blocks.append([coordinate + begin, min(n - begin, layout.size), word, own.size, block, state])
            words.append(own)
            word += own.size
        coordinate += n
    return np.array(sub_blocks, np.int64), np.array(models, np.int32), np.concatenate(words).astype(np.int32)


@cache
def _table(device: torch.device) -> torch.Tensor:
    """int64 ``[1024 + 192]``: survivals of every 64th hazard, and the powers that all are made of; once per device."""
    coarse = [survival(64 * number) for number in range(_COARSE)]
    return up(np.concatenate([np.array(coarse, np.int64), POWERS.astype(np.int64)]), device, "constants")


def _kernel(function: Callable[..., None]) -> Any:
    """Have Triton compile a function when it is first launched."""
    return triton.jit(function)


@_kernel
def _survival(hazard: tl.tensor, table: tl.tensor, COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr) -> tl.tensor:
    """:func:`maskreg.codec.movers.survival`, below 2^28, or 2^28 for a hazard of 0."""
    powers = table + COARSE
    coarse = tl.load(powers + ((hazard >> 6) & 127))
    fine = tl.load(powers + 128 + (hazard & 63))
    return (coarse * fine) >> (62 - SURVIVAL_BITS + (hazard >> 13))


@_kernel
def _goal(number: tl.tensor, table: tl.tensor, COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr) -> tl.tensor:
    """:func:`maskreg.codec.movers.hazard_of`: the 64 hazards that it lies among, then which of them."""
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
def _adaptive(
    state: tl.tensor, chances: tl.tensor, which: tl.tensor, words: tl.tensor, word: tl.tensor, count: tl.tensor,
    CHANCES: tl.constexpr, CHANCE_BITS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """An adaptive bit: the bit, and state, chances and words after it."""
    own = tl.arange(0, CHANCES) == which
    entry = tl.sum(tl.where(own, chances, 0), axis=0)
    chance = entry & 0xFFFF
    seen = entry >> 16
    share = tl.minimum(tl.maximum(chance, 64), (1 << CHANCE_BITS) - 64)
    bit = ((state & 0xFFFF).to(tl.int32) >= share).to(tl.int32)
    start = bit * share
    freq = tl.where(bit > 0, (1 << CHANCE_BITS) - share, share)
    state, word = _word(_taken(state, start, freq, bit * 0 + CHANCE_BITS), words, word, count)
    away = (tl.where(bit > 0, 0, 65535) - chance).to(tl.int64)
    moved = ((away * ((1 << 17) // (2 * seen + 3)).to(tl.int64)) >> 16).to(tl.int32)
    updated = (chance + moved) | (tl.minimum(seen + 1, 61) << 16)
    return bit, state, tl.where(own, updated, chances), word


@_kernel
def _interval(
    sums: tl.tensor, hazard: tl.tensor, here: tl.tensor, reached: tl.tensor, waits: tl.tensor, table: tl.tensor,
    COARSE: tl.constexpr, SURVIVAL_BITS: tl.constexpr, LIMIT: tl.constexpr, LEAST_SURVIVAL: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """What numbers a mover takes, or a wait that goes on: the first and how many; and the mover's sum."""
    after = tl.sum(tl.where(here, sums, 0), axis=0).to(tl.int64)
    own = tl.sum(tl.where(here, hazard, 0), axis=0).to(tl.int64)
    start = _survival(tl.minimum(after - reached, LIMIT), table, COARSE, SURVIVAL_BITS)
    stop = _survival(tl.maximum(after - own - reached, 0), table, COARSE, SURVIVAL_BITS)
    return tl.where(waits, 0, start), tl.where(waits, LEAST_SURVIVAL, stop - start), after


@_kernel
def _step(
    source: tl.tensor, negative: tl.tensor, coded: tl.tensor, state: tl.tensor, chances: tl.tensor, words: tl.tensor,
    word: tl.tensor, count: tl.tensor,
    CHANCES: tl.constexpr, CHANCE_BITS: tl.constexpr, MOST_LONGER: tl.constexpr, EXPONENTS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A mover's value, by one ULP unless its ULP step is coded; and state, chances and words after it."""
    exponent = (source >> 7) & 0xFF
    longer = negative * 0
    going = coded
    while going > 0:
        which = tl.where(longer > 0, EXPONENTS + exponent + longer, exponent)
        bit, state, chances, word = _adaptive(state, chances, which, words, word, count, CHANCES, CHANCE_BITS)
        longer += bit
        going = bit * (longer < MOST_LONGER).to(tl.int32)
    length = negative * 0 + 1
    literal = (longer == MOST_LONGER).to(tl.int32)
    if (longer > 0) & (literal == 0):
        # The second list of binades follows the first, of 288.
        which = EXPONENTS + 288 + exponent + longer
        top, state, chances, word = _adaptive(state, chances, which, words, word, count, CHANCES, CHANCE_BITS)
        length = (2 + top) << (longer - 1)
    plain = tl.where(literal > 0, 16, tl.maximum(longer - 1, 0))
    if plain > 0:
        low = (state & ((1 << plain) - 1).to(tl.uint64)).to(tl.int32)
        state, word = _word(_taken(state, low, negative * 0 + 1, plain), words, word, count)
        length = tl.where(literal > 0, low, length | low)
    step = tl.where(negative > 0, -length, length)
    moved = (source & 0x8000) | (((source & 0x7FFF) + step) & 0x7FFF)
    return tl.where(literal > 0, length, moved), state, chances, word


@_kernel
def _movers(
    context: tl.tensor, sub_blocks: tl.tensor, models: tl.tensor, words: tl.tensor, table: tl.tensor,
    values: tl.tensor, failed: tl.tensor,
    TILE: tl.constexpr, FIELDS: tl.constexpr, MODEL_FIELDS: tl.constexpr, CLASSES: tl.constexpr, COARSE: tl.constexpr,
    CHANCES: tl.constexpr, LIMIT: tl.constexpr, SURVIVAL_BITS: tl.constexpr, LEAST_SURVIVAL: tl.constexpr,
    CHANCE_BITS: tl.constexpr, MOST_LONGER: tl.constexpr, EXPONENTS: tl.constexpr,
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
    lowest_class = tl.load(model + CLASSES)
    ones = tl.load(model + CLASSES + 1)
    chances = tl.full([CHANCES], 1 << (CHANCE_BITS - 1), tl.int32)
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
                start, freq, after = _interval(
                    sums, hazard, here, reached, waits, table, COARSE, SURVIVAL_BITS, LIMIT, LEAST_SURVIVAL
                )
                state, word = _word(_taken(state, start, freq, negative * 0 + SURVIVAL_BITS), own_words, word, count)
                reached = tl.where(waits, goal, after)
                source = tl.sum(tl.where(here, code, 0), axis=0)
                moves = (waits == 0).to(tl.int32)
                coded = moves * (((source >> 7) & 0xFF) < ones).to(tl.int32)
                value, state, chances, word = _step(
                    source, negative, coded, state, chances, own_words, word, count,
                    CHANCES, CHANCE_BITS, MOST_LONGER, EXPONENTS,
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
