"""Blocks made of other blocks, for changes that are not small steps. FORMAT.md section 5.7 has every bit.

    scaled   every weight times a factor        a block whose source is the source times that factor
    apart    weights unlike the source's        signs and mantissas as they are; a block for the exponents
    zeroed   some weights become 0              a block that says which; a block whose source has these zeros
    rows     few rows of a matrix change        a list of these rows; a block of their coordinates alone

Where all weights were multiplied by 2, say, the inner block of a scaled one is "same": 20 bytes in all. An inner block
has a kind with a lower number, so there are few within each other.

There are no kernels for these: such blocks are rare, and most of their time goes into inner blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import FLAT, Block, Codes, Grid
from maskreg.codec.contexts import rows_of
from maskreg.codec.layout import APART, HEAD_BYTES, ROWS, SCALED, ZEROED, Head
from maskreg.codec.movers import LOGARITHM_BITS, LOGARITHMS
from maskreg.errors import CorruptError

Encode = Callable[[Codes, Codes, Grid, int], bytes]
"""Codes a target, given source and grid, as a block of a kind below a number."""

Decode = Callable[[Codes, Block], Codes]

_FACTOR, _ZEROED, _ROWS = struct.Struct("<I"), struct.Struct("<IH"), struct.Struct("<III")

_CODES = 1 << 16
_SIGN, _MAGNITUDE, _INFINITY = np.uint16(0x8000), np.uint16(0x7FFF), np.uint16(0x7F80)
_SKIP = 255  # in a list of rows: so many that stay, and no row that changes after them

_MIDDLE = np.uint16(0x40)
"""Mantissa that exponents are coded with, so that differences of exponents are short ULP steps from it."""

_SAMPLED = 1 << 12  # coordinates that are looked at first, about
_SAVED_BITS = 0.5  # by how much a factor has to shorten the distance of a coordinate, on average, to be tried
_FEW_ZEROS = 64  # zeros are coded apart where one coordinate in so many is one
_NEGATED_BITS = 16  # what a change of sign takes, as a distance


def decode_derived(head: Head, block: Block, source: Codes, decode: Decode) -> Codes:
    """The values of a block of one of these kinds that :meth:`Head.read` has checked."""
    view = memoryview(block)

    def inner(context: Codes, start: int, stop: int | None = None) -> Codes:
        own = view[start:stop]
        if Head.read(own).kind >= head.kind:
            raise CorruptError("block", "its inner block is of a kind that it cannot have")
        return decode(context, own)

    def field(layout: struct.Struct) -> Any:
        if len(view) < HEAD_BYTES + layout.size:
            raise CorruptError("block", "its header is truncated")
        return layout.unpack_from(view, HEAD_BYTES)

    n, start = head.n, HEAD_BYTES
    if head.kind == SCALED:
        (factor,) = field(_FACTOR)
        if not 0 < factor >> 23 & 0xFF < 0xFF:
            raise CorruptError("block", "its factor is no number")
        return inner(scaled(source, factor), start + _FACTOR.size)
    if head.kind == APART:
        if len(view) < start + n:
            raise CorruptError("block", "its mantissas are truncated")
        low, context = np.frombuffer(view, np.uint8, n, start).astype(np.uint16), _exponents_of(source)
        exponents = inner(context, start + n) - context + np.uint16(head.rank)
        signs, mantissas = low << np.uint16(8) & _SIGN, low & np.uint16(0x7F)
        values: Codes = signs | exponents << np.uint16(7) & _INFINITY | mantissas
        return values
    if head.kind == ZEROED:
        size, least = field(_ZEROED)
        start += _ZEROED.size
        zeroed = (inner(source, start, start + size) != source) ^ (source & _MAGNITUDE < least)
        return inner(np.where(zeroed, _zeros(source, head.rank), source), start + size)
    width, column, size = field(_ROWS)
    start += _ROWS.size
    if not column < width <= n or not 0 < size <= len(view) - start:
        raise CorruptError("block", "its header is invalid")
    gaps = np.frombuffer(view, np.uint8, size, start).astype(np.int64)
    # A byte is how many rows to pass over, and all but a skip list the row that comes then.
    rows = np.cumsum(gaps + (gaps < _SKIP))[gaps < _SKIP] - 1
    changing = np.zeros(rows_of(Grid(width, column), n), np.bool_)
    if gaps[-1] == _SKIP or rows[-1] >= changing.size:
        raise CorruptError("block", "its list of rows is invalid")
    changing[rows] = True
    own, values = _coordinates(changing, Grid(width, column), n), source.copy()
    values[own] = inner(source[own], start + size)
    return values


def scaled(codes: Codes, factor: int) -> Codes:
    """Codes times a factor, the bits of a normal fp32; each product rounded to fp32 and then to bf16.

    Where a code or its product is no normal number, at most the sign changes.
    """
    if codes.size > _CODES:
        return scaled(np.arange(_CODES, dtype=np.uint16), factor)[codes]
    with np.errstate(all="ignore"):
        products = (codes.astype(np.uint32) << 16).view(np.float32) * np.uint32(factor).view(np.float32)
    bits = products.view(np.uint32)
    results = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    signs = (codes ^ np.uint16(factor >> 16)) & _SIGN
    magnitudes: Codes = np.where(_is_normal(codes) & _is_normal(results), results, codes) & _MAGNITUDE
    return magnitudes | signs


def _is_normal(codes: Codes) -> npt.NDArray[np.bool_]:
    magnitude = codes & _MAGNITUDE
    return (magnitude >= 0x80) & (magnitude < _INFINITY)


def encode_scaled(source: Codes, target: Codes, grid: Grid, encode: Encode) -> bytes | None:
    """A scaled block; None where no factor brings the source much closer to the target."""
    every = max(1, source.size // _SAMPLED)
    before, after = source[::every], target[::every]
    factor = _factor_of(before, after)
    if factor is None:
        return None
    saved = _distances(before, after) - _distances(scaled(before, factor), after)
    if saved.mean() < _SAVED_BITS:
        return None
    inner = encode(scaled(source, factor), target, grid, SCALED)
    return Head(target.size, SCALED).pack() + _FACTOR.pack(factor) + inner


def _factor_of(source: Codes, target: Codes) -> int | None:
    """The factor under which most codes are rounded to the target's, as the bits of an fp32; None if there is none.

    Each pair of codes bounds it from both sides. Where the bounds of all agree, it lies in their middle; else it is the
    median of the ratios.
    """
    known = _is_normal(source) & _is_normal(target)
    before, after = source[known] & _MAGNITUDE, target[known] & _MAGNITUDE
    if not before.size:
        return None
    values = _values(after)
    ratios = np.stack([values + _values(after - 1), values + _values(after + 1), 2 * values]) / (2 * _values(before))
    low, high = float(ratios[0].max()), float(ratios[1].min())
    with np.errstate(over="ignore"):
        factor = np.float32((low + high) / 2 if low <= high else np.median(ratios[2]))
    negative = 2 * int(np.count_nonzero(((source ^ target) & _SIGN)[known])) > before.size
    bits = int(factor.view(np.uint32)) | negative << 31
    return bits if 0 < bits >> 23 & 0xFF < 0xFF else None


def _values(codes: Codes) -> npt.NDArray[np.float64]:
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _distances(source: Codes, target: Codes) -> npt.NDArray[np.float64]:
    """About how many bits it takes to say how far apart codes are."""
    steps = (source & _MAGNITUDE).astype(np.int64) - (target & _MAGNITUDE)
    return np.where((source ^ target) & _SIGN, _NEGATED_BITS, np.frexp(np.abs(steps))[1])


def apart_bytes(target: Codes) -> int:
    """About how long a block without the source would be: 8 bits and the entropy of the exponents."""
    sample = target[:: max(1, target.size // _SAMPLED)] >> 7 & 0xFF
    weighed = _weighed_logarithms(np.append(np.bincount(sample), sample.size).astype(np.int64))
    bits = 8 + (int(weighed[-1]) - int(weighed[:-1].sum())) / (sample.size << LOGARITHM_BITS)
    return int(target.size * bits / 8)


def _weighed_logarithms(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of each count of less than 2^31, c log2(c)."""
    counted = np.maximum(counts, 1)
    octave = np.frexp(counted)[1].astype(np.int64) - 1
    fraction = (counted << 31 - octave) - (1 << 31)
    index, rest = fraction >> 23, fraction >> 7 & 0xFFFF
    low = LOGARITHMS[index].astype(np.int64)
    weighed: npt.NDArray[np.int64] = counts * (
        (octave << LOGARITHM_BITS) + low + ((LOGARITHMS[index + 1] - low) * rest >> 16)
    )
    return weighed


def encode_apart(source: Codes, target: Codes, encode: Encode) -> bytes:
    """A block that uses no more of the source than its exponents."""
    exponents = target >> 7 & 0xFF
    usual = int(np.bincount(exponents, minlength=1).argmax())
    context = _exponents_of(source)
    # Less the usual exponent, so that coordinates of it do not move.
    inner = encode(context, context + exponents - np.uint16(usual) & _MAGNITUDE, FLAT, APART)
    low = (target >> 8 & 0x80 | target & 0x7F).astype(np.uint8)
    return Head(target.size, APART, rank=usual).pack() + low.tobytes() + inner


def _exponents_of(source: Codes) -> Codes:
    """The source as far as it matters to the exponents of the target."""
    return source & _INFINITY | _MIDDLE


def encode_zeroed(source: Codes, target: Codes, grid: Grid, encode: Encode) -> bytes | None:
    """A block of coordinates that become 0 and others; None where few do."""
    every = max(1, source.size // _SAMPLED)
    if _FEW_ZEROS * np.count_nonzero(target[::every] & _MAGNITUDE == 0) < target[::every].size:
        return None
    magnitude = source & _MAGNITUDE
    zeroed = (target & _MAGNITUDE == 0) & (magnitude > 0)
    # Where a weight is negative, zeros tell of which kind they are.
    signed = target[zeroed & (source >= _SIGN)]
    positive = int(2 * np.count_nonzero(signed) < signed.size)
    zeros = _zeros(source, positive)
    zeroed &= target == zeros
    # Smaller ones become 0, and others stay, with the fewest exceptions.
    sides = [np.bincount(magnitude[own], minlength=_SIGN) for own in (zeroed, ~zeroed)]
    # By border: how many below it stay, less those below it that become 0. The least has the fewest exceptions.
    exceptions = np.concatenate([[0], np.cumsum(sides[1] - sides[0])])
    least = int(exceptions[:_SIGN].argmin())
    # Any other code marks an exception; one ULP step is the cheapest.
    marked = np.where(zeroed ^ (magnitude < least), source & _SIGN | source + 1 & _MAGNITUDE, source)
    which = encode(source, marked, grid, ZEROED)
    rest = encode(np.where(zeroed, zeros, source), target, grid, ZEROED)
    return Head(target.size, ZEROED, rank=positive).pack() + _ZEROED.pack(len(which), least) + which + rest


def _zeros(source: Codes, positive: int) -> Codes:
    """The zero that a coordinate becomes: of its sign, or the positive one."""
    return source & (np.uint16(0) if positive else _SIGN)


def encode_rows(source: Codes, target: Codes, grid: Grid, changing: npt.NDArray[np.bool_], encode: Encode) -> bytes:
    """A block of some rows. ``changing``: ``[rows]``, those that change; at least one."""
    gaps = np.diff(np.flatnonzero(changing), prepend=-1) - 1
    ends = np.cumsum(gaps // _SKIP + 1)
    listed = np.full(int(ends[-1]), _SKIP, np.uint8)
    listed[ends - 1] = gaps % _SKIP
    own = _coordinates(changing, grid, target.size)
    inner = encode(source[own], target[own], Grid(grid.width, grid.column if changing[0] else 0), ROWS)
    head = Head(target.size, ROWS).pack() + _ROWS.pack(*grid, listed.size)
    return head + listed.tobytes() + inner


def _coordinates(rows: npt.NDArray[np.bool_], grid: Grid, n: int) -> npt.NDArray[np.bool_]:
    """Which coordinates lie in these rows, ``[n]``."""
    return np.repeat(rows, grid.width)[grid.column : grid.column + n]
