"""Eight coordinates at a time: masked ones moved together, and apart again, for x86 processors with AVX2.

One permutation does either, looked up by the eight bits of the mask. All others go from bit to bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maskreg.jit.vector import BYTES, I64, INTS, WIDTH, WORDS, Writer, data_of, lanes_of, long

_SET = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1

TOGETHER: npt.NDArray[np.uint8] = np.argsort(1 - _SET, axis=1, kind="stable").astype(np.uint8)
"""For each eight bits, uint8 ``[256, 8]``: the lanes whose bits are set, in order, and then the others."""

APART: npt.NDArray[np.uint8] = ((np.cumsum(_SET, axis=1) - 1) * _SET).astype(np.uint8)
"""For each eight bits, uint8 ``[256, 8]``: how many are set before each lane whose bit is; 0 for the others."""

QUIET = 0x7FC0
"""What becomes of any NaN in bf16."""


class _Moving(Writer):
    """The loops of :func:`pack_octets` and :func:`spread_octets`."""

    def __init__(self, builder: Any, arrays: list[Any], narrow: bool) -> None:
        super().__init__(builder)
        (self._values, self._octets, self._orders, self._packed) = arrays
        self._narrow = narrow

    def write(self, spreads: bool, begin: Any, end: Any) -> Any:
        """All of it, over octets ``[begin, end)``; how many coordinates were moved."""
        b = self._b
        place = cgutils.alloca_once(b, I64)
        b.store(long(0), place)
        with cgutils.for_range(b, b.sub(end, begin)) as loop:
            octet = b.add(begin, loop.index)
            bits = b.load(b.gep(self._octets, [octet]))
            wide, at, here = b.zext(bits, I64), b.shl(octet, long(3)), b.load(place)
            order = b.zext(self._load(self._orders, BYTES, b.shl(wide, long(3))), INTS)
            if spreads:
                self._spread(bits, order, at, here)
            else:
                self._store(self._permute(self._widened(at), order), self._packed, here)
            b.store(b.add(here, self._ones(wide)), place)
        return b.load(place)

    def _widened(self, at: Any) -> Any:
        if not self._narrow:
            return self._load(self._values, INTS, at)
        return self._b.shl(self._b.zext(self._load(self._values, WORDS, at), INTS), lanes_of(16))

    def _spread(self, bits: Any, order: Any, at: Any, here: Any) -> None:
        b = self._b
        new = self._permute(self._load(self._packed, INTS, here), order)
        first = b.insert_element(ir.Constant(BYTES, [0] * WIDTH), bits, ir.Constant(ir.IntType(32), 0))
        all_bits = b.zext(b.shuffle_vector(first, first, lanes_of(0)), INTS)
        powers = ir.Constant(INTS, [1 << lane for lane in range(WIDTH)])
        chosen = b.icmp_signed("==", b.and_(all_bits, powers), powers)
        if not self._narrow:
            self._store(b.select(chosen, new, self._load(self._values, INTS, at)), self._values, at)
            return
        old = b.zext(self._load(self._values, WORDS, at), INTS)
        self._store(b.trunc(b.select(chosen, self._rounded(new), old), WORDS), self._values, at)

    def _rounded(self, wide: Any) -> Any:
        """The nearest bf16, or of two the even one, in the low bits."""
        b = self._b
        odd = b.and_(b.lshr(wide, lanes_of(16)), lanes_of(1))
        near = b.lshr(b.add(b.add(wide, lanes_of(0x7FFF)), odd), lanes_of(16))
        no_number = b.icmp_signed(">", b.and_(wide, lanes_of(0x7FFFFFFF)), lanes_of(0x7F800000))
        return b.select(no_number, lanes_of(QUIET), near)


def _moving(spreads: bool, signature: Any, context: Any, builder: Any, args: Any) -> Any:
    arrays = data_of(context, builder, signature.args[:4], args[:4])
    begin, end = (context.cast(builder, args[i], signature.args[i], types.int64) for i in (4, 5))
    return _Moving(builder, arrays, signature.args[0].dtype.bitwidth == 16).write(spreads, begin, end)


@intrinsic
def pack_octets(typing_context, values, octets, orders, packed, begin, end):  # type: ignore[no-untyped-def]
    """Move masked values together, as fp32; returns how many there were.

    It takes ``values`` (uint32, bits of fp32; or uint16, of bf16), ``octets`` (uint8, the mask's), :data:`TOGETHER`,
    ``packed`` (float32, filled from its beginning; up to 7 entries after the last change too), and ``begin`` and
    ``end``, octets whose eight coordinates are all there. All arrays are C-contiguous.
    """
    signature = types.int64(values, octets, orders, packed, begin, end)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _moving(False, signature, context, builder, args)

    return signature, generate


@intrinsic
def spread_octets(typing_context, values, octets, orders, packed, begin, end):  # type: ignore[no-untyped-def]
    """Move fp32 values to the masked coordinates, rounded where those are bf16; returns how many there were.

    The same arguments as those of :func:`pack_octets`, with :data:`APART`. Of ``packed``, 7 entries after the last are
    read too.
    """
    signature = types.int64(values, octets, orders, packed, begin, end)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _moving(True, signature, context, builder, args)

    return signature, generate
