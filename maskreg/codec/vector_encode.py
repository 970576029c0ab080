"""The encoder's loop in vectors of 8 lanes, as LLVM instructions, for x86 processors with AVX2.

Processors without AVX2 run the plain twin, :func:`maskreg.codec.rans.encode_tokens`, which gives the same results; see
:mod:`maskreg.codec.vector_decode` for why these loops are emitted.

Coding a token waits for the one after it in its lane, for a division above all. Four vectors of lanes that do not wait
for each other keep the processor busy, so two sub-blocks of 16 lanes are coded side by side.

There is no division of integers in vectors. But when a word is put out before a state gets too large, quotients are
below 2^20, and a division of 32-bit floats errs by less than 2^-3 on them. Minus a quarter and rounded down, it is the
quotient or one less, and the remainder says which:

    q = floor(x / f - 1/4);  r = x - q f
    new state = 4096 q + g + r,  plus 4096 - f where r >= f, because that is 4096 (q + 1) + g + (r - f)

    x = 351,232, f = 3,072: floor(114.33 - .25) = 114, r = 1,024        4096 * 114 + g + 1,024
    x = 87,040,  f = 1,024: floor(85.00 - .25) = 84,   r = 1,024 >= f   4096 * 84 + g + 1,024 + 3,072
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maskreg.jit.vector import FLOATS, I8, I64, INTS, WIDTH, WORDS, Writer, fields_of, lanes_of, long


def _packings() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: those lanes, in order, in the last places.

    Lanes 1, 4 and 5 are due: set 0b00110010 = 50, and row 50 is ``0 2 3 6 7 1 4 5``. All 8 words are stored so that
    they end where the words before begin; the next store overwrites the first five.
    """
    due = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1
    orders: npt.NDArray[np.int32] = np.argsort(due, axis=1, kind="stable").astype(np.int32)
    return orders


PACKINGS = _packings()


class _Encoding(Writer):
    """The loop of :func:`vector_encoder`.

    for i in end - 16, end - 32, ... begin:
        for each sub-block, for each of its two vectors of lanes, the upper one first:
            slot = slots[keys[i : i + 8]]                               a gather
            where it is 0: key |= literal, and look up again            rare, so behind a branch
            f = slot & 0xFFFF;  g = slot >> 16                          x are the lanes' states
            due = x >> 20 >= f                                          8 flags
            words[position - 8 : position] = permuted(x, PACKINGS[due])
            position -= number of due
            x = due ? x >> 16 : x
            x = 4096 * (x / f) + g + x % f
    """

    def __init__(self, builder: Any, arrays: list[Any], table_bits: int, literal: int) -> None:
        super().__init__(builder)
        (self._keys, self._slots, self._states, self._words, self._positions, self._packings) = arrays
        self._table_bits, self._literal = table_bits, literal

    def write(self, sub_blocks: int, lanes: int, strides: Sequence[Any], span: Sequence[Any]) -> None:
        """Emit it. ``strides`` are those of ``keys`` and ``words`` from sub-block to sub-block."""
        b = self._b
        (stride, room), (begin, end) = strides, span
        vectors = lanes // WIDTH
        # Variables that LLVM keeps in registers throughout the loop.
        states = self._load_all(self._states, sub_blocks * vectors)
        positions = [cgutils.alloca_once(b, I64) for _ in range(sub_blocks)]
        for k, position in enumerate(positions):
            b.store(b.load(b.gep(self._positions, [long(k)])), position)
        with cgutils.for_range(b, b.udiv(b.sub(end, begin), long(lanes))) as loop:
            first = b.sub(end, b.mul(b.add(loop.index, long(1)), long(lanes)))
            for k in range(sub_blocks):
                keys, words = b.add(first, b.mul(long(k), stride)), b.mul(long(k), room)
                for vector in reversed(range(vectors)):
                    i = b.add(keys, long(vector * WIDTH))
                    self._encode(i, states[k * vectors + vector], positions[k], words)
        self._store_all(states, self._states)
        for k, position in enumerate(positions):
            b.store(b.load(position), b.gep(self._positions, [long(k)]))

    def _look_up(self, key: Any) -> Any:
        return self._gather(self._slots, self._b.zext(key, INTS), 4)

    def _encode(self, i: Any, state: Any, position: Any, words: Any) -> None:
        b = self._b
        # the slots of the tokens, and of literals in place of those without
        key = self._load(self._keys, WORDS, i)
        slot = cgutils.alloca_once(b, INTS)
        b.store(self._look_up(key), slot)
        missing = b.icmp_signed("==", b.load(slot), lanes_of(0))
        with b.if_then(b.icmp_signed("!=", b.bitcast(missing, I8), ir.Constant(I8, 0)), likely=False):
            literal = b.select(missing, b.or_(key, ir.Constant(WORDS, [self._literal] * WIDTH)), key)
            self._store(literal, self._keys, i)
            b.store(self._look_up(literal), slot)
        freq, start = b.and_(b.load(slot), lanes_of(0xFFFF)), b.lshr(b.load(slot), lanes_of(16))
        x = b.load(state)
        # words of the lanes that are due, before those that were put out last
        due = b.icmp_signed(">=", b.lshr(x, lanes_of(32 - self._table_bits)), freq)
        due_set = self._mask(due)
        order = self._load(self._packings, INTS, b.mul(due_set, long(WIDTH)))
        packed = b.trunc(self._permute(x, order), WORDS)
        at = b.load(position)
        self._store(packed, self._words, b.add(words, b.sub(at, long(WIDTH))))
        b.store(b.sub(at, self._ones(due_set)), position)
        # those lanes go on with their upper halves
        x = b.select(due, b.lshr(x, lanes_of(16)), x)
        # the new state, by a division of floats
        about = b.fsub(b.fdiv(b.uitofp(x, FLOATS), b.sitofp(freq, FLOATS)), ir.Constant(FLOATS, [0.25] * WIDTH))
        quotient = b.fptosi(about, INTS)
        rest = b.sub(x, b.mul(quotient, freq))
        more = b.select(b.icmp_signed(">=", rest, freq), b.sub(lanes_of(1 << self._table_bits), freq), lanes_of(0))
        x = b.add(b.add(b.shl(quotient, lanes_of(self._table_bits)), start), b.add(rest, more))
        b.store(x, state)


def vector_encoder(sub_blocks: int, lanes: int, table_bits: int, literal: int) -> Any:
    """A function for kernels that codes the tokens of one or two sub-blocks, side by side and from last to first.

    It takes a NamedTuple of C-contiguous arrays, :data:`PACKINGS`, ``strides`` (from sub-block to sub-block, in
    ``keys`` and in ``words``) and ``span`` (begin and end, multiples of ``lanes``), both pairs of integers; see
    :func:`maskreg.codec.rans.encode_tokens`. The arrays are ``keys`` (uint16), ``slots`` (uint32), ``states`` (uint32,
    a row per sub-block), ``words`` (uint16, likewise; one for each token, and 8 more) and ``positions`` (int64, one per
    sub-block: where its words begin, replaced).

    Args:
        sub_blocks: one or two.
        lanes: of each; a multiple of 8.
        table_bits: the frequencies of a table sum to that power of two.
        literal: bits that turn any key into its cell's literal.
    """

    @intrinsic
    def encode(typing_context, arrays, packings, strides, span):  # type: ignore[no-untyped-def]
        signature = types.void(arrays, packings, strides, span)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointers = fields_of(context, builder, signature.args[:2], args[:2])
            pairs = [
                [
                    context.cast(builder, number, kind, types.int64)
                    for kind, number in zip(pair, cgutils.unpack_tuple(builder, value), strict=True)
                ]
                for pair, value in zip(signature.args[2:], args[2:], strict=True)
            ]
            _Encoding(builder, pointers, table_bits, literal).write(sub_blocks, lanes, *pairs)
            return context.get_dummy_value()

        return signature, generate

    return encode
