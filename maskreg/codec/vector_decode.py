"""The decoder's loops in vectors of 8 lanes, as LLVM instructions, for x86 processors with AVX2.

Numba cannot be made to write these: it vectorizes loops whose iterations are independent, and these depend on a
gathered table, a permutation and a running position. So they are emitted as LLVM instructions, as functions that
kernels call. Processors without AVX2 run the plain twins in :mod:`maskreg.codec.rans` and
:mod:`maskreg.codec.ulp_steps`, which say what is computed and give the same results.

Decoding a token waits for the one before in its lane: for the table, then the product, then the next word, some 25
cycles. A vector decodes 8 lanes at once. Four vectors that do not wait for each other keep the processor busy, so two
sub-blocks of 16 lanes are decoded side by side.

The words that are due go to the lanes that need them by a permutation, looked up by the set of those lanes (F. Giesen,
"Interleaved entropy coders", arXiv:1402.3392, section 4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maskreg.jit.vector import BYTES, I8, I32, I64, INTS, WIDTH, WORDS, Writer, fields_of, lanes_of, long

_SIXTEEN, _MANY = ir.VectorType(I8, 16), ir.VectorType(I8, 32)


def _permutations() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: which of the next words each lane takes.

    Lanes 1, 4 and 5 are due: set 0b00110010 = 50, and row 50 is ``0 0 0 0 1 2 0 0``. Lane 1 takes the first word, lane
    4 the second, lane 5 the third; what the others are given is not used.
    """
    due = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1
    orders: npt.NDArray[np.int32] = ((np.cumsum(due, axis=1) - 1) * due).astype(np.int32)
    return orders


PERMUTATIONS = _permutations()


class EntryBits(NamedTuple):
    """Where the fields of a decoding table's entry are, see :mod:`maskreg.codec.rans`.

    Attributes:
        slot_shift: first bit of the slot within the token.
        freq_shift: first bit of the frequency.
        table_bits: bits of a slot.
    """

    slot_shift: int
    freq_shift: int
    table_bits: int


class _Decoding(Writer):
    """The loop of :func:`vector_decoder`.

    for i in 0, 16, 32, ... count:
        for each sub-block, for each of its two vectors of lanes:
            entry = entries[4096 * tables[i : i + 8] + (x & 4095)]          a gather; x are the lanes' states
            tokens[i : i + 8] = entry & 127
            x = (entry >> 19) * (x >> 12) + (entry >> 7 & 4095)
            due = x < 2^16                                                  8 flags
            x = due ? x << 16 | permuted(next 8 words, PERMUTATIONS[due]) : x
            position += number of due                                       of the sub-block's next word
    """

    def __init__(self, builder: Any, arrays: list[Any], entry: EntryBits) -> None:
        super().__init__(builder)
        (self._words, self._tables, self._entries, self._states, self._tokens, self._positions, self._orders) = arrays
        self._entry = entry

    def write(self, sub_blocks: int, lanes: int, strides: tuple[int, int], count: Any) -> None:
        """Emit it. ``strides`` are those of ``tables`` and ``tokens``, and of ``words``."""
        b = self._b
        stride, room = strides
        vectors = lanes // WIDTH
        # Variables that LLVM keeps in registers throughout the loop.
        states = self._load_all(self._states, sub_blocks * vectors)
        positions = [cgutils.alloca_once(b, I64) for _ in range(sub_blocks)]
        for position in positions:
            b.store(long(0), position)
        with cgutils.for_range(b, b.udiv(count, long(lanes))) as loop:
            first = b.mul(loop.index, long(lanes))
            for k in range(sub_blocks):
                for vector in range(vectors):
                    i = b.add(first, long(k * stride + vector * WIDTH))
                    self._decode(i, states[k * vectors + vector], positions[k], k * room)
        self._store_all(states, self._states)
        for k, position in enumerate(positions):
            b.store(b.load(position), b.gep(self._positions, [long(k)]))

    def _decode(self, i: Any, state: Any, position: Any, words: int) -> None:
        b = self._b
        slot_shift, freq_shift, table_bits = self._entry
        slot_mask = lanes_of((1 << table_bits) - 1)
        # the entry of each lane, in its own table
        table = b.shl(b.zext(self._load(self._tables, BYTES, i), INTS), lanes_of(table_bits))
        x = b.load(state)
        entry = self._gather(self._entries, b.or_(table, b.and_(x, slot_mask)), 4)
        # its lowest bits are the token
        self._store(b.trunc(b.and_(entry, lanes_of((1 << slot_shift) - 1)), BYTES), self._tokens, i)
        # the new state: frequency times x >> 12, plus the slot within the token
        slot = b.and_(b.lshr(entry, lanes_of(slot_shift)), slot_mask)
        x = b.add(b.mul(b.lshr(entry, lanes_of(freq_shift)), b.lshr(x, lanes_of(table_bits))), slot)
        # the next words, to the lanes that are due
        due = b.icmp_unsigned("<", x, lanes_of(1 << 16))
        due_set = self._mask(due)
        at = b.load(position)
        near = b.zext(self._load(self._words, WORDS, b.add(at, long(words))), INTS)
        order = self._load(self._orders, INTS, b.mul(due_set, long(WIDTH)))
        # they append their word; the position moves on by their number
        x = b.select(due, b.or_(b.shl(x, lanes_of(16)), self._permute(near, order)), x)
        b.store(x, state)
        b.store(b.add(at, self._ones(due_set)), position)


def vector_decoder(sub_blocks: int, lanes: int, strides: tuple[int, int], entry: EntryBits) -> Any:
    """A function for kernels that decodes the tokens of one or two sub-blocks, side by side.

    It takes a NamedTuple of C-contiguous arrays, :data:`PERMUTATIONS`, and ``count``, a multiple of ``lanes``; see
    :func:`maskreg.codec.rans.decode_tokens`. The arrays, each with a row per sub-block except ``entries``, are
    ``words`` (uint16), ``tables`` (uint8), ``entries`` (uint32), ``states`` (uint32), ``tokens`` (uint8) and
    ``positions`` (int64, one per sub-block: filled with the number of words taken).

    Args:
        sub_blocks: one or two.
        lanes: of each; a multiple of 8.
        strides: lengths of a row of ``tables`` and ``tokens``, and of a row of ``words``, which has at least 8 more
            than there are tokens, because 8 words are loaded at a time.
        entry: where the fields of an entry are.
    """

    @intrinsic
    def decode(typing_context, arrays, orders, count):  # type: ignore[no-untyped-def]
        signature = types.void(arrays, orders, count)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointers = fields_of(context, builder, signature.args[:2], args[:2])
            count = context.cast(builder, args[2], signature.args[2], types.int64)
            _Decoding(builder, pointers, entry).write(sub_blocks, lanes, strides, count)
            return context.get_dummy_value()

        return signature, generate

    return decode


class _LookingUp(Writer):
    """The loop of :func:`look_up_vectors`.

    for i in 0, 32, 64, ... count:
        result = 0
        for first in 0, 16, 32, ... 16 * groups:
            index = keys[i : i + 32] ^ first            below 16 exactly where the key lies in this group
            result |= shuffle(table[first : first + 16], saturated(index + 0x70))
        keys[i : i + 32] = result

    A byte shuffle looks up 32 bytes at once, but only among 16, and gives 0 for an index whose highest bit is set. The
    saturating sum sets that bit for every index of 16 or more; of the others it keeps the low 4 bits, which are used.
    Keys 5 and 21, second group: 5 ^ 16 = 21 -> 0x85 -> 0, and 21 ^ 16 = 5 -> 0x75 -> table[16 + 5].
    """

    def write(self, keys: Any, table: Any, groups: Any, count: Any) -> None:
        b = self._b
        with cgutils.for_range(b, b.udiv(b.add(count, long(31)), long(32))) as loop:
            i = b.mul(loop.index, long(32))
            key = self._load(keys, _MANY, i)
            result = cgutils.alloca_once(b, _MANY)
            b.store(ir.Constant(_MANY, [0] * 32), result)
            with cgutils.for_range(b, groups) as inner:
                first = b.mul(inner.index, long(16))
                sixteen = self._load(table, _SIXTEEN, first)
                # The shuffle works within each half of a vector, so both hold the group.
                both = b.shuffle_vector(sixteen, sixteen, ir.Constant(ir.VectorType(I32, 32), [*range(16)] * 2))
                start = b.insert_element(ir.Constant(_MANY, [0] * 32), b.trunc(first, I8), ir.Constant(I32, 0))
                starts = b.shuffle_vector(start, start, ir.Constant(ir.VectorType(I32, 32), [0] * 32))
                index = self._call("llvm.uadd.sat.v32i8", _MANY, b.xor(key, starts), ir.Constant(_MANY, [0x70] * 32))
                b.store(b.or_(b.load(result), self._call("llvm.x86.avx2.pshuf.b", _MANY, both, index)), result)
            self._store(b.load(result), keys, i)


@intrinsic
def look_up_vectors(typing_context, keys, table, groups, count):  # type: ignore[no-untyped-def]
    """Replace ``count`` bytes by the entries of ``table`` that they number; by 0 beyond its end.

    It takes ``keys`` (uint8, a multiple of 32 and at least ``count`` long; some after ``count`` change), ``table``
    (uint8, at least ``16 * groups``), ``groups`` and ``count``. All arrays are C-contiguous.
    """
    signature = types.void(keys, table, groups, count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = fields_of(context, builder, signature.args[:2], args[:2])
        numbers = [context.cast(builder, args[i], signature.args[i], types.int64) for i in (2, 3)]
        _LookingUp(builder).write(*pointers, *numbers)
        return context.get_dummy_value()

    return signature, generate


class StepTokens(NamedTuple):
    """What the tokens of ULP steps mean, see :mod:`maskreg.codec.ulp_steps`.

    Attributes:
        middle: token of a ULP step of 0.
        nearest: the longest ULP step without extra bits.
        fewer: how many extra bits less a token has than its distance from the middle.
        most: extra bits of a literal, and of any token.
    """

    middle: int
    nearest: int
    fewer: int
    most: int


class _Applying(Writer):
    """The loop of :func:`step_applier`.

    for i in 0, 8, 16, ... count:
        step = tokens[i : i + 8] - middle;  size = |step|
        counts = size <= nearest ? 0 : min(size - fewer, most)              extra bits of each lane
        after = prefix sums of counts                                       bits of the lane and those before it
        bit = start + after - counts                                        where the lane's extra bits begin
        extra = (4 bytes at bit / 8) >> bit % 8 & (2^counts - 1)            a gather
        size = size <= nearest ? size : 2^counts + extra + 1
        value = source +- size, within 15 bits, with the source's sign
        values[i : i + 8] = size - fewer > most ? extra : value             a literal is its extra bits
        start += after[7]

    Prefix sums of 4 0 16 0, say, take a shifted addition by 1 (4 4 16 16) and one by 2 (4 4 20 20).
    """

    def __init__(self, builder: Any, arrays: list[Any], tokens: StepTokens) -> None:
        super().__init__(builder)
        (self._source, self._tokens, self._flips, self._values, self._bits) = arrays
        self._meaning = tokens

    def write(self, start: Any, count: Any) -> Any:
        """Emit it; the result is the bit after the last one read."""
        b = self._b
        position = cgutils.alloca_once(b, INTS)
        b.store(self._spread(b.trunc(start, I32)), position)
        with cgutils.for_range(b, b.udiv(count, long(WIDTH))) as loop:
            self._apply(b.mul(loop.index, long(WIDTH)), position)
        return b.zext(b.extract_element(b.load(position), ir.Constant(I32, 0)), I64)

    def _apply(self, i: Any, position: Any) -> None:
        b = self._b
        middle, nearest, fewer, most = self._meaning
        # size = |token - middle|
        step = b.sub(b.zext(self._load(self._tokens, BYTES, i), INTS), lanes_of(middle))
        sign = b.ashr(step, lanes_of(31))
        size = b.sub(b.xor(step, sign), sign)
        # counts = bits of each lane: 0, size - fewer, or those of a literal
        is_far = b.icmp_signed(">", size, lanes_of(nearest))
        wanted = b.sub(size, lanes_of(fewer))
        is_literal = b.icmp_signed(">", wanted, lanes_of(most))
        counts = b.select(is_far, b.select(is_literal, lanes_of(most), wanted), lanes_of(0))
        # bit = where the lane's begin; the next vector's begin after lane 7's
        start, after = b.load(position), self._prefix_sums(counts)
        b.store(b.add(start, self._permute(after, lanes_of(WIDTH - 1))), position)
        bit = b.add(start, b.sub(after, counts))
        # those bits, and the size where there are some
        read = b.lshr(self._gather(self._bits, b.lshr(bit, lanes_of(3)), 1), b.and_(bit, lanes_of(7)))
        power = b.shl(lanes_of(1), counts)
        extra = b.and_(read, b.sub(power, lanes_of(1)))
        size = b.select(is_far, b.add(b.add(power, extra), lanes_of(1)), size)
        # 0 or -1, with which xor and subtraction negate.
        negative = b.xor(sign, b.sext(self._load(self._flips, BYTES, i), INTS))
        # value = the source's sign, and its magnitude plus or minus size
        code = b.zext(self._load(self._source, WORDS, i), INTS)
        moved = b.add(code, b.sub(b.xor(size, negative), negative))
        value = b.or_(b.and_(code, lanes_of(0x8000)), b.and_(moved, lanes_of(0x7FFF)))
        self._store(b.trunc(b.select(is_literal, extra, value), WORDS), self._values, i)

    def _spread(self, number: Any) -> Any:
        first = self._b.insert_element(lanes_of(0), number, ir.Constant(I32, 0))
        return self._b.shuffle_vector(first, first, lanes_of(0))

    def _prefix_sums(self, counts: Any) -> Any:
        b = self._b
        for shift in (1, 2):
            # Within each half of the vector, where moving lanes takes a third of the time.
            moved = [lane - shift if lane % 4 >= shift else WIDTH for lane in range(WIDTH)]
            counts = b.add(counts, b.shuffle_vector(counts, lanes_of(0), ir.Constant(INTS, moved)))
        # Then the sum of the lower half goes to all lanes of the upper one. Lane 8 is a 0.
        half = [WIDTH] * 4 + [3] * 4
        return b.add(counts, b.shuffle_vector(counts, lanes_of(0), ir.Constant(INTS, half)))


def step_applier(tokens: StepTokens) -> Any:
    """A function for kernels that turns tokens into values; it returns the bit after their extra bits.

    It takes a NamedTuple of C-contiguous arrays (:class:`maskreg.codec.ulp_steps.Moves`), ``bits`` (uint8), the bit
    ``start`` where the extra bits begin, and ``count``, of which it does whole vectors of 8; see
    :func:`maskreg.codec.ulp_steps.apply_each`. From ``start`` on, ``bits`` has ``most`` bits per token and 4 bytes, and
    no more than 2^28 bits in all.

    Args:
        tokens: what they mean.
    """

    @intrinsic
    def apply(typing_context, moves, bits, start, count):  # type: ignore[no-untyped-def]
        signature = types.int64(moves, bits, start, count)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointers = fields_of(context, builder, signature.args[:2], args[:2])
            numbers = [context.cast(builder, args[i], signature.args[i], types.int64) for i in (2, 3)]
            return _Applying(builder, pointers, tokens).write(*numbers)

        return signature, generate

    return apply
