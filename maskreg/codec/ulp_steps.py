"""ULP steps: how many representable numbers lie between a code and its new value, as one token of 64.

A ULP step is the difference of the magnitudes (the low 15 bits of the codes), so neighboring bf16 numbers are one step
apart, also across a power of two. Most are short, so short ones have a token of their own; long ones share a token per
size class and add extra bits, as lengths do in Deflate. With ``v = token - 32``:

    v                 ULP step                             extra bits
    -16 .. 16         v                                    none
    17 .. 27          2^d + x + 1,     d = v - 13          d bits: x
    -27 .. -17        -(2^d + x + 1),  d = -v - 13         d bits: x
    31 (token 63)     literal: the new code itself         16 bits

So d counts from 4 (17 to 32 steps) to 14 (16,385 to 32,768 steps), and every magnitude can be reached. A change of sign
is always a literal: steps are taken between magnitudes, and sign changes are too rare to deserve tokens.

    source 0x3F80 (1.0), target 0x3F83       step +3      token 35
    source 0xBF80 (-1.0), target 0xBF7F      step -1      token 31: negative is toward zero, whatever the sign
    source 0x3F80, target 0x3F94             step +20     d = 4 (17 to 32 steps), x = 20 - 16 - 1 = 3:
                                                          token 32 + 13 + 4 = 49, extra bits 3 in 4 bits
    source 0x3F80, target 0xBF80             sign change  token 63, extra bits 0xBF80

Where a prediction says which way a coordinate moved (see :mod:`maskreg.codec.contexts`), the sign of v is flipped so
that a positive v agrees with the prediction: the tokens then have one likely side instead of two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Bits, Ints
from maskreg.native import library
from maskreg.parallel import Buffers

EXPONENTS = 256
"""Values of a code's exponent field."""

MIDDLE = 32
"""Token of a ULP step of 0."""

NEAREST = 16
"""The longest ULP step without extra bits."""

FARTHEST = 27
"""``|v|`` of the longest size class."""

LITERAL = 63
"""Token of a code that is stored whole."""

FEWER_BITS = 13
"""A long ULP step has ``|v|`` minus this many extra bits."""

LITERAL_BITS = 16
"""Extra bits of a literal."""

COUNTERS = 4
"""Counters per key, for which kernels need room."""

_LONG = 1 << 16  # coordinates from which on a sample of them is counted: one in four
_LONGER = 1 << 20  # coordinates from which on it is one in eight
_TILE = 1024  # coordinates that are in the sample together
_FEW = 16  # when fewer than one in so many moved, all are counted

_BUFFERS = Buffers()

Tokens = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


class Moves(NamedTuple):
    """Source and tokens of a span, flips, -1 where the sign of the ULP step is flipped, and the values to be filled."""

    source: Codes
    tokens: Tokens
    flips: Ints
    values: Codes


def tokens_of(source: Codes, target: Codes, tokens: Tokens, counts: Counts) -> None:
    """Fill the tokens of all coordinates, not flipped, and add how many of each there are by exponent of the source.

    Counts, ``[256, 64]``, serve to choose between plans. From :data:`_LONG` coordinates on they are estimated by a
    sample, unless few of it moved.
    """
    if compiled := library():
        arrays = compiled.read(source), compiled.read(target)
        scratch = compiled.write(_BUFFERS.array("counters", COUNTERS * counts.size, np.uint32))
        compiled.lib.maskreg_tokens_of(*arrays, source.size, compiled.write(tokens), compiled.write(counts), scratch)
        return
    steps = (target & 0x7FFF).astype(np.int64) - (source & 0x7FFF)
    lengths = np.abs(steps)
    # floor(log2(length - 1)): the exponent that frexp gives is one more.
    classes = FEWER_BITS - 1 + np.frexp(np.maximum(lengths - 1, 1).astype(np.float64))[1]
    sizes = np.where(lengths <= NEAREST, lengths, classes)
    sign_changed = (source ^ target) >> 15 != 0
    tokens[:] = np.where(sign_changed, LITERAL, MIDDLE + np.sign(steps) * sizes)
    keys = source >> np.uint16(1) & np.uint16(0xFF << 6) | tokens
    if source.size >= _LONG:
        # By a hash of their numbers, because tiles at equal distances may have the same columns of a matrix.
        hashes = np.arange(source.size // _TILE + 1, dtype=np.uint32) * np.uint32(2246822507) >> np.uint32(29)
        sampled = hashes < (2 if source.size < _LONGER else 1)
        sample = keys[np.repeat(sampled, _TILE)[: source.size]]
        if _FEW * np.count_nonzero(sample & np.uint16(0x3F) != MIDDLE) >= sample.size:
            keys = sample
    own = np.bincount(keys, minlength=counts.size).reshape(counts.shape)
    # Each coordinate of a sample for as many as there are in all.
    counts += (own * source.size + keys.size // 2) // max(keys.size, 1)


def put_extra_bits(source: Codes, target: Codes, tokens: Tokens, bits: npt.NDArray[np.uint32]) -> int:
    """Write the extra bits of tokens, in order, as NumPy computes it; returns how many.

    Bit i of the stream is bit i mod 32 of word i // 32. Whether tokens are flipped does not matter.
    """
    sizes = np.abs(tokens.astype(np.int64) - MIDDLE)
    far = np.flatnonzero(sizes > NEAREST)
    counts = np.minimum(sizes[far] - FEWER_BITS, LITERAL_BITS)
    lengths = np.abs((target[far] & 0x7FFF).astype(np.int64) - (source[far] & 0x7FFF))
    extra = np.where(tokens[far] == LITERAL, target[far], lengths - 1 - (1 << counts))
    # Bit j of each, wherever there are as many.
    each = (extra[:, None] >> np.arange(LITERAL_BITS) & 1).astype(np.uint8)
    stream = each[np.arange(LITERAL_BITS) < counts[:, None]]
    packed = np.packbits(stream, bitorder="little")
    packed = np.concatenate([packed, np.zeros(-packed.size % 4, np.uint8)]).view("<u4")
    bits[: packed.size] = packed
    return int(counts.sum())


def apply_tokens(moves: Moves, bits: Bits, start: int, end: int) -> int:
    """Fill the values of all tokens, as NumPy computes it; returns the bit after their extra bits.

    Nothing is read from ``end`` on: bits beyond it count as zeros.
    """
    source, tokens, flips, values = moves
    steps = tokens.astype(np.int64) - MIDDLE
    lengths = np.abs(steps)
    far = lengths > NEAREST
    counts = np.where(far, np.minimum(lengths - FEWER_BITS, LITERAL_BITS), 0)
    after = start + np.cumsum(counts)
    at = np.minimum(after - counts, end)
    padded = np.concatenate([bits, np.zeros(4, np.uint8)])
    four = sum(padded[(at >> 3) + k].astype(np.int64) << 8 * k for k in range(4))
    extra = (four >> (at & 7)) & ((1 << counts) - 1)
    lengths = np.where(far, (1 << counts) + extra + 1, lengths)
    moved = source + np.where((steps < 0) != (flips != 0), -lengths, lengths)
    values[:] = np.where(tokens == LITERAL, extra, source & 0x8000 | moved & 0x7FFF)
    return int(after[-1]) if tokens.size else start
