"""Kernels of steps on a GPU: a program unpacks, ranks, gathers, updates and scatters a block in one pass.

Here a block is the range of coordinates that one program works on (1,024), in every kernel by the same scheme::

    i      = block * BLOCK + (0 .. BLOCK - 1)               # coordinates
    bits   = octets[i >> 3] >> (i & 7) & 1                  # mask, one lane per coordinate
    entry  = rank[first word of the block] + exclusive prefix sum of bits
    state  = load(exp_avg + entry, where bits)              # gather
    ...                                                     # update all lanes
    store(exp_avg + entry, state, where bits)               # scatter
    store(weights + i, where(bits, new, old))               # the whole block

Example, with blocks of 4: the block whose first word has rank 7 and whose bits are 1 0 1 1 has entries 7 . 8 9. Entries
of a block are contiguous, so gathers coalesce, and blocks are independent: programs need no synchronization.

Weights and dense gradients come as bits, int16 of bf16 or int32 of fp32, so that frozen NaNs keep their payload. A
block's weights are written whole, frozen ones with their old bits, because full transactions are faster than masked
ones.

The long parameter lists are Triton's launch signature: it specializes on scalars and pointers one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

_QUIET_NAN = tl.constexpr(0x7FC0)  # bits of bf16 that any NaN is rounded to


def _kernel(function: Callable[..., Any]) -> Any:
    """``triton.jit`` with a type that mypy knows."""
    return triton.jit(function)


@_kernel
def _widened(code: tl.tensor) -> tl.tensor:
    """Bits of bf16 or fp32 as fp32."""
    wide = code.to(tl.int32) << 16 if code.dtype == tl.int16 else code
    return wide.to(tl.float32, bitcast=True)


@_kernel
def _rounded(value: tl.tensor, kind: tl.constexpr) -> tl.tensor:
    """Bits of fp32, or of the nearest bf16, to even on ties."""
    wide = value.to(tl.int32, bitcast=True)
    if kind == tl.int16:
        # The shift is arithmetic; the conversion to int16 drops the copies of the sign.
        near = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
        code = tl.where((wide & 0x7FFFFFFF) > 0x7F800000, _QUIET_NAN, near).to(tl.int16)
    else:
        code = wide
    return code


@_kernel
def _taken(master: tl.tensor, entry: tl.tensor, chosen: tl.tensor, old: tl.tensor) -> tl.tensor:
    """Masters of a block's masked coordinates, but the weight where that is not what its master rounds to.

    As in :mod:`maskreg.train.optim.backends`.
    """
    kept = tl.load(master + entry, mask=chosen, other=0.0)
    return tl.where(_rounded(kept, old.dtype) == old, kept, _widened(old))


@_kernel
def _coordinates(block: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Coordinates of a block; the last block can reach past the end."""
    return block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@_kernel
def _bits(octets: tl.tensor, i: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """The mask of coordinates, 0 or 1."""
    octet = tl.load(octets + (i >> 3), mask=inside, other=0).to(tl.int32)
    return (octet >> (i & 7).to(tl.int32)) & 1


@_kernel
def _entries(rank: tl.tensor, block: tl.tensor, bits: tl.tensor, BLOCK: tl.constexpr, WORD: tl.constexpr) -> tl.tensor:
    """Index into packed state of each masked coordinate; any index elsewhere."""
    return tl.load(rank + block.to(tl.int64) * (BLOCK // WORD)) + tl.cumsum(bits, axis=0) - bits


@_kernel
def _slopes(
    gradient: tl.tensor, i: tl.tensor, inside: tl.tensor, entry: tl.tensor, chosen: tl.tensor, PACKED: tl.constexpr
) -> tl.tensor:
    """The gradient of a block's masked coordinates; anything elsewhere."""
    if PACKED:
        slope = tl.load(gradient + entry, mask=chosen, other=0.0)
    else:
        slope = _widened(tl.load(gradient + i, mask=inside, other=0))
    return slope


@_kernel
def adamw(
    weights: tl.tensor, gradient: tl.tensor, octets: tl.tensor, rank: tl.tensor, numel: tl.tensor,
    exp_avg: tl.tensor, exp_avg_sq: tl.tensor, master: tl.tensor,
    scale: tl.tensor, keep: tl.tensor, part1: tl.tensor, beta2: tl.tensor, part2: tl.tensor, root: tl.tensor,
    eps: tl.tensor, size: tl.tensor,
    PACKED: tl.constexpr, MASTER: tl.constexpr, BLOCK: tl.constexpr, WORD: tl.constexpr,
) -> None:  # fmt: skip
    """Take a step of AdamW; ``keep`` to ``size`` are :class:`maskreg.train.optim.step.AdamWFactors`."""
    block = tl.program_id(0)
    i = _coordinates(block, BLOCK)
    inside = i < numel
    bits = _bits(octets, i, inside)
    if tl.sum(bits, axis=0) > 0:
        chosen = bits != 0
        entry = _entries(rank, block, bits, BLOCK, WORD)
        slope = _slopes(gradient, i, inside, entry, chosen, PACKED) * scale
        first = tl.load(exp_avg + entry, mask=chosen, other=0.0)
        second = tl.load(exp_avg_sq + entry, mask=chosen, other=0.0)
        old = tl.load(weights + i, mask=inside, other=0)
        value = _taken(master, entry, chosen, old) if MASTER else _widened(old)
        first += part1 * (slope - first)
        second = second * beta2 + part2 * slope * slope
        value = value * keep - size * first / (tl.sqrt(second) * root + eps)
        tl.store(exp_avg + entry, first, mask=chosen)
        tl.store(exp_avg_sq + entry, second, mask=chosen)
        if MASTER:
            tl.store(master + entry, value, mask=chosen)
        tl.store(weights + i, tl.where(chosen, _rounded(value, old.dtype), old), mask=inside)


@_kernel
def accumulate(
    total: tl.tensor, gradient: tl.tensor, octets: tl.tensor, rank: tl.tensor, numel: tl.tensor,
    BLOCK: tl.constexpr, WORD: tl.constexpr,
) -> None:  # fmt: skip
    """Add masked entries of a dense gradient to ``total``, fp32 ``[nnz]``."""
    block = tl.program_id(0)
    i = _coordinates(block, BLOCK)
    inside = i < numel
    bits = _bits(octets, i, inside)
    if tl.sum(bits, axis=0) > 0:
        chosen = bits != 0
        entry = _entries(rank, block, bits, BLOCK, WORD)
        slope = _widened(tl.load(gradient + i, mask=inside, other=0))
        tl.store(total + entry, tl.load(total + entry, mask=chosen, other=0.0) + slope, mask=chosen)


@_kernel
def square_sum(
    values: tl.tensor, octets: tl.tensor, numel: tl.tensor, sums: tl.tensor,
    MASKED: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Fill ``sums``, float64 ``[programs]``: each program sums the squares of every ``programs``-th block."""
    squares = tl.zeros([BLOCK], tl.float64)
    block = tl.program_id(0).to(tl.int64)
    while block * BLOCK < numel:
        i = _coordinates(block, BLOCK)
        inside = i < numel
        value = _widened(tl.load(values + i, mask=inside, other=0)).to(tl.float64)
        if MASKED:
            value = tl.where(_bits(octets, i, inside) != 0, value, 0.0)
        squares += value * value
        block += tl.num_programs(0)
    tl.store(sums + tl.program_id(0), tl.sum(squares, axis=0))
