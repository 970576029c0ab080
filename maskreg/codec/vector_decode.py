"""The decoder's loops in vectors, for x86 processors with AVX2; all others work lane by lane.

Decoding one token waits for the one before in its lane: for the table, the product, and the next word. A vector decodes
eight lanes at once, and four vectors that do not wait for each other keep the processor busy, so two sub-blocks of 16
lanes are decoded side by side. The words that are due are spread over the lanes by one permutation, looked up by which
lanes they are due in (F. Giesen, "Interleaved entropy coders", arXiv:1402.3392, section 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maskreg.jit.vector import BYTES, I8, I32, I64, INTS, WIDTH, WORDS, Writer, data_of, lanes_of, long

_SIXTEEN, _MANY = ir.VectorType(I8, 16), ir.VectorType(I8, 32)


def _permutations() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: the place of each lane's word among those that are due."""
    due = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1
    places: npt.NDArray[np.int32] = ((np.cumsum(due, axis=1) - 1) * due).astype(np.int32)
    return places


PERMUTATIONS = _permutations()


class _Decoding(Writer):
    """The loop of :func:`vector_decoder`."""

    def __init__(self, builder: Any, arrays: list[Any], token_bits: tuple[int, int, int]) -> None:
        super().__init__(builder)
        (self._words, self._numbers, self._table, self._states, self._tokens, self._places, self._orders) = arrays
        self._slot_shift, self._freq_shift, self._table_bits = token_bits

    def write(self, runs: int, lanes: int, stride: int, room: int, count: Any) -> None:
        """All of it, over ``count`` tokens of each of ``runs`` sub-blocks; the arrays' rows are that far apart."""
        b = self._b
        vectors = lanes // WIDTH
        states = self._load_all(self._states, runs * vectors)
        places = [cgutils.alloca_once(b, I64) for _ in range(runs)]
        for place in places:
            b.store(long(0), place)
        with cgutils.for_range(b, b.udiv(count, long(lanes))) as loop:
            first = b.mul(loop.index, long(lanes))
            for run in range(runs):
                for vector in range(vectors):
                    at = b.add(first, long(run * stride + vector * WIDTH))
                    self._step(at, states[run * vectors + vector], places[run], run * room)
        self._store_all(states, self._states)
        for run, place in enumerate(places):
            b.store(b.load(place), b.gep(self._places, [long(run)]))

    def _step(self, at: Any, state: Any, place: Any, words: int) -> None:
        b = self._b
        mask, table_bits = lanes_of((1 << self._table_bits) - 1), lanes_of(self._table_bits)
        start = b.shl(b.zext(self._load(self._numbers, BYTES, at), INTS), table_bits)
        x = b.load(state)
        entry = self._gather(self._table, b.or_(start, b.and_(x, mask)), 4)
        self._store(b.trunc(b.and_(entry, lanes_of((1 << self._slot_shift) - 1)), BYTES), self._tokens, at)
        slot = b.and_(b.lshr(entry, lanes_of(self._slot_shift)), mask)
        x = b.add(b.mul(b.lshr(entry, lanes_of(self._freq_shift)), b.lshr(x, table_bits)), slot)
        due = b.icmp_unsigned("<", x, lanes_of(1 << 16))
        lanes = self._mask(due)
        here = b.load(place)
        near = b.zext(self._load(self._words, WORDS, b.add(here, long(words))), INTS)
        order = self._load(self._orders, INTS, b.mul(lanes, long(WIDTH)))
        x = b.select(due, b.or_(b.shl(x, lanes_of(16)), self._permute(near, order)), x)
        b.store(x, state)
        b.store(b.add(here, self._ones(lanes)), place)


def vector_decoder(runs: int, lanes: int, stride: int, room: int, token_bits: tuple[int, int, int]) -> Any:
    """A function for kernels that decodes the tokens of ``runs`` sub-blocks side by side.

    It takes ``words`` (uint16, rows of ``room``), ``numbers`` (uint8, rows of ``stride``), ``table`` (uint32),
    ``states`` (uint32, rows of ``lanes``), ``tokens`` (uint8, rows of ``stride``), ``places`` (int64, one for each run:
    the words taken), :data:`PERMUTATIONS` and ``count``, a multiple of ``lanes``; see
    :func:`maskreg.codec.rans.decode_tokens`. All arrays are C-contiguous.

    Args:
        runs: sub-blocks.
        lanes: of each; a multiple of 8.
        stride: of ``numbers`` and ``tokens``.
        room: of ``words``; at least ``count + 8``.
        token_bits: where in a table's entry the slot and the frequency begin, and the table's bits.
    """

    @intrinsic
    def decode(typing_context, words, numbers, table, states, tokens, places, orders, count):  # type: ignore[no-untyped-def]
        signature = types.void(words, numbers, table, states, tokens, places, orders, count)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = data_of(context, builder, signature.args[:-1], args[:-1])
            count = context.cast(builder, args[-1], signature.args[-1], types.int64)
            _Decoding(builder, arrays, token_bits).write(runs, lanes, stride, room, count)
            return context.get_dummy_value()

        return signature, generate

    return decode


class _LookingUp(Writer):
    """The loop of :func:`look_up_vectors`."""

    def write(self, places: Any, table: Any, groups: Any, count: Any) -> None:
        b = self._b
        with cgutils.for_range(b, b.udiv(b.add(count, long(31)), long(32))) as loop:
            at = b.mul(loop.index, long(32))
            here = self._load(places, _MANY, at)
            found = cgutils.alloca_once(b, _MANY)
            b.store(ir.Constant(_MANY, [0] * 32), found)
            with cgutils.for_range(b, groups) as inner:
                first = b.mul(inner.index, long(16))
                sixteen = self._load(table, _SIXTEEN, first)
                both = b.shuffle_vector(sixteen, sixteen, ir.Constant(ir.VectorType(I32, 32), [*range(16)] * 2))
                start = b.insert_element(ir.Constant(_MANY, [0] * 32), b.trunc(first, I8), ir.Constant(I32, 0))
                starts = b.shuffle_vector(start, start, ir.Constant(ir.VectorType(I32, 32), [0] * 32))
                # A byte of this group is less than 16 now; any other gets its highest bit, and is looked up as 0.
                order = self._call(
                    "llvm.uadd.sat.v32i8", _MANY, b.xor(here, starts), ir.Constant(_MANY, [0x70] * 32)
                )  # fmt: skip
                b.store(b.or_(b.load(found), self._call("llvm.x86.avx2.pshuf.b", _MANY, both, order)), found)
            self._store(b.load(found), places, at)


@intrinsic
def look_up_vectors(typing_context, places, table, groups, count):  # type: ignore[no-untyped-def]
    """Replace ``count`` bytes by those they are the places of in ``table``; places beyond its end by 0.

    It takes ``places`` (uint8, a multiple of 32 and at least ``count`` long; some after ``count`` change), ``table``
    (uint8, at least ``16 * groups``), ``groups`` and ``count``. All arrays are C-contiguous.
    """
    signature = types.void(places, table, groups, count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = data_of(context, builder, signature.args[:2], args[:2])
        numbers = [context.cast(builder, args[i], signature.args[i], types.int64) for i in (2, 3)]
        _LookingUp(builder).write(*arrays, *numbers)
        return context.get_dummy_value()

    return signature, generate


class _Applying(Writer):
    """The loop of :func:`step_applier`."""

    def __init__(self, builder: Any, arrays: list[Any], middle: int, nearest: int, fewer: int, most: int) -> None:
        super().__init__(builder)
        (self._context, self._tokens, self._flips, self._values, self._bits) = arrays
        self._middle, self._nearest, self._fewer, self._most = middle, nearest, fewer, most

    def write(self, at: Any, count: Any) -> Any:
        """All of it, over ``count`` tokens; the bit after theirs."""
        b = self._b
        place = cgutils.alloca_once(b, INTS)
        b.store(self._spread(b.trunc(at, I32)), place)
        with cgutils.for_range(b, b.udiv(count, long(WIDTH))) as loop:
            self._step(b.mul(loop.index, long(WIDTH)), place)
        return b.zext(b.extract_element(b.load(place), ir.Constant(I32, 0)), I64)

    def _step(self, at: Any, place: Any) -> None:
        b = self._b
        step = b.sub(b.zext(self._load(self._tokens, BYTES, at), INTS), lanes_of(self._middle))
        size = self._size(step)
        far = b.icmp_signed(">", size, lanes_of(self._nearest))
        long = b.sub(size, lanes_of(self._fewer))
        literal = b.icmp_signed(">", long, lanes_of(self._most))
        counts = b.select(far, b.select(literal, lanes_of(self._most), long), lanes_of(0))
        here, after = b.load(place), self._sums(counts)
        b.store(b.add(here, self._permute(after, lanes_of(WIDTH - 1))), place)
        bit = b.add(here, b.sub(after, counts))
        read = b.lshr(self._gather(self._bits, b.lshr(bit, lanes_of(3)), 1), b.and_(bit, lanes_of(7)))
        power = b.shl(lanes_of(1), counts)
        extra = b.and_(read, b.sub(power, lanes_of(1)))
        size = b.select(far, b.add(b.add(power, extra), lanes_of(1)), size)
        turn = b.xor(b.ashr(step, lanes_of(31)), b.sext(self._load(self._flips, BYTES, at), INTS))
        code = b.zext(self._load(self._context, WORDS, at), INTS)
        moved = b.add(code, b.sub(b.xor(size, turn), turn))
        value = b.or_(b.and_(code, lanes_of(0x8000)), b.and_(moved, lanes_of(0x7FFF)))
        self._store(b.trunc(b.select(literal, extra, value), WORDS), self._values, at)

    def _spread(self, number: Any) -> Any:
        first = self._b.insert_element(lanes_of(0), number, ir.Constant(I32, 0))
        return self._b.shuffle_vector(first, first, lanes_of(0))

    def _size(self, step: Any) -> Any:
        sign = self._b.ashr(step, lanes_of(31))
        return self._b.sub(self._b.xor(step, sign), sign)

    def _sums(self, counts: Any) -> Any:
        """Of each lane and those before it."""
        b = self._b
        for shift in (1, 2):
            # Within each half, where moving lanes takes a third of the time.
            moved = [lane - shift if lane % 4 >= shift else WIDTH for lane in range(WIDTH)]
            counts = b.add(counts, b.shuffle_vector(counts, lanes_of(0), ir.Constant(INTS, moved)))
        half = [WIDTH] * 4 + [3] * 4
        return b.add(counts, b.shuffle_vector(counts, lanes_of(0), ir.Constant(INTS, half)))


def step_applier(middle: int, nearest: int, fewer: int, most: int) -> Any:
    """A function for kernels that makes values of tokens; it returns the bit after their extra bits.

    It takes ``context`` (uint16), ``tokens`` (uint8), ``flips`` (int8), ``values`` (uint16), ``bits`` (uint8), the bit
    ``at`` where the extra bits begin, and ``count``, of which as many are done as whole vectors of 8 hold; see
    :func:`maskreg.codec.steps.apply_each`. All arrays are C-contiguous; from ``at`` on, ``bits`` has ``most``
    bits for each token and 4 bytes, and no more than 2^28 bits in all.

    Args:
        middle: token of a step of 0.
        nearest: the longest step without extra bits.
        fewer: how many extra bits less a token has than its distance from the middle.
        most: extra bits of a literal, and of any token.
    """

    @intrinsic
    def apply(typing_context, context, tokens, flips, values, bits, at, count):  # type: ignore[no-untyped-def]
        signature = types.int64(context, tokens, flips, values, bits, at, count)

        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = data_of(target, builder, signature.args[:5], args[:5])
            numbers = [target.cast(builder, args[i], signature.args[i], types.int64) for i in (5, 6)]
            return _Applying(builder, arrays, middle, nearest, fewer, most).write(*numbers)

        return signature, generate

    return apply
