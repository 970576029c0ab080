"""Packing and spreading eight coordinates at a time, for x86 processors with AVX2.

AVX2 has no compress or expand instruction. Either is a permutation that the mask's octet selects from a table of 256::

    octet 0b00101100 (lanes 2, 3, 5)

    pack     values  a b c d e f g h        TOGETHER: 2 3 5 0 1 4 6 7     ->  c d f a b e g h
             Stored whole at the current entry; the next octet begins 3 entries later and overwrites the rest.

    spread   packed  p q r s t u v w        APART:    0 0 0 1 0 2 0 0     ->  p p p q p r p p
             Blended with the old values by the octet's bits:                 a b p q e r g h
             The next octet reads 3 entries later.

So a pack may write, and a spread read, up to 7 entries past the last; callers reserve room for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maskreg.jit.vector import BYTES, I64, INTS, WIDTH, WORDS, Writer, data_of, lanes_of, long

_SET = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1

TOGETHER: npt.NDArray[np.uint8] = np.argsort(1 - _SET, axis=1, kind="stable").astype(np.uint8)
"""For each octet, uint8 ``[256, 8]``: the lanes whose bits are set, in order, then the others."""

APART: npt.NDArray[np.uint8] = ((np.cumsum(_SET, axis=1) - 1) * _SET).astype(np.uint8)
"""For each octet, uint8 ``[256, 8]``: the number of set bits below each lane whose bit is set; 0 for the others."""

QUIET_NAN = 0x7FC0
"""Bits of bf16 that any NaN is rounded to."""


class _Arrays(NamedTuple):
    """Where the arrays of :func:`pack_octets` begin, as values of LLVM."""

    values: Any
    octets: Any
    orders: Any
    packed: Any


class _OctetLoop(Writer):
    """Writes the loop of :func:`pack_octets` or :func:`spread_octets`."""

    def __init__(self, builder: Any, arrays: _Arrays, is_bf16: bool) -> None:
        super().__init__(builder)
        self._arrays = arrays
        self._is_bf16 = is_bf16

    def write(self, spreads: bool, begin: Any, end: Any) -> Any:
        """Write it for octets ``[begin, end)``; returns the number of masked coordinates."""
        b, arrays = self._b, self._arrays
        count = cgutils.alloca_once(b, I64)
        b.store(long(0), count)
        with cgutils.for_range(b, b.sub(end, begin)) as loop:
            octet = b.add(begin, loop.index)
            bits = b.load(b.gep(arrays.octets, [octet]))
            wide, at, entry = b.zext(bits, I64), b.shl(octet, long(3)), b.load(count)
            order = b.zext(self._load(arrays.orders, BYTES, b.shl(wide, long(3))), INTS)
            if spreads:
                self._spread(bits, order, at, entry)
            else:
                self._store(self._permute(self._widened(at), order), arrays.packed, entry)
            b.store(b.add(entry, self._ones(wide)), count)
        return b.load(count)

    def _widened(self, at: Any) -> Any:
        if not self._is_bf16:
            return self._load(self._arrays.values, INTS, at)
        return self._b.shl(self._b.zext(self._load(self._arrays.values, WORDS, at), INTS), lanes_of(16))

    def _spread(self, bits: Any, order: Any, at: Any, entry: Any) -> None:
        b, values = self._b, self._arrays.values
        new = self._permute(self._load(self._arrays.packed, INTS, entry), order)
        # The octet in every lane, of which each lane tests its own bit.
        first = b.insert_element(ir.Constant(BYTES, [0] * WIDTH), bits, ir.Constant(ir.IntType(32), 0))
        all_bits = b.zext(b.shuffle_vector(first, first, lanes_of(0)), INTS)
        powers = ir.Constant(INTS, [1 << lane for lane in range(WIDTH)])
        chosen = b.icmp_signed("==", b.and_(all_bits, powers), powers)
        if not self._is_bf16:
            self._store(b.select(chosen, new, self._load(values, INTS, at)), values, at)
            return
        old = b.zext(self._load(values, WORDS, at), INTS)
        self._store(b.trunc(b.select(chosen, self._rounded(new), old), WORDS), values, at)

    def _rounded(self, wide: Any) -> Any:
        """Bits of the nearest bf16, to even on ties; as ``_rounded`` in :mod:`maskreg.train.optim.tiles` does it."""
        b = self._b
        odd = b.and_(b.lshr(wide, lanes_of(16)), lanes_of(1))
        near = b.lshr(b.add(b.add(wide, lanes_of(0x7FFF)), odd), lanes_of(16))
        is_nan = b.icmp_signed(">", b.and_(wide, lanes_of(0x7FFFFFFF)), lanes_of(0x7F800000))
        return b.select(is_nan, lanes_of(QUIET_NAN), near)


def _octet_loop(spreads: bool, signature: Any, context: Any, builder: Any, args: Any) -> Any:
    arrays = _Arrays(*data_of(context, builder, signature.args[:4], args[:4]))
    begin, end = (context.cast(builder, args[i], signature.args[i], types.int64) for i in (4, 5))
    return _OctetLoop(builder, arrays, signature.args[0].dtype.bitwidth == 16).write(spreads, begin, end)


@intrinsic
def pack_octets(typing_context, values, octets, orders, packed, begin, end):  # type: ignore[no-untyped-def]
    """Pack masked values as fp32; returns how many.

    Numba hands an intrinsic its typing context first, and types of arrays only one by one; hence seven parameters.

    Args:
        typing_context: of Numba.
        values: uint32 (bits of fp32) or uint16 (of bf16), C-contiguous as all arrays.
        octets: uint8, the mask's.
        orders: :data:`TOGETHER`.
        packed: float32, filled from its beginning; up to 7 entries past the last are overwritten.
        begin: first octet.
        end: one past the last; all eight coordinates of each have to exist.
    """
    signature = types.int64(values, octets, orders, packed, begin, end)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _octet_loop(False, signature, context, builder, args)

    return signature, generate


@intrinsic
def spread_octets(typing_context, values, octets, orders, packed, begin, end):  # type: ignore[no-untyped-def]
    """Spread fp32 values to the masked coordinates, rounded where those are bf16; returns how many.

    The arguments are those of :func:`pack_octets`, with :data:`APART`; up to 7 entries of ``packed`` past the last are
    read.
    """
    signature = types.int64(values, octets, orders, packed, begin, end)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _octet_loop(True, signature, context, builder, args)

    return signature, generate
