"""The encoding loop in vectors of eight lanes, for x86 processors with AVX2; all others encode lane by lane.

Coding a token waits for the one after it in its lane: for a division above all. Four vectors of lanes that do not wait
for each other keep the processor busy, so two sub-blocks of 16 lanes are coded side by side. Quotients have 20 bits at
most, so a division of 32-bit floats gives them, or one less, and the remainder tells which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_WIDTH = 8
_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_WORDS, _LANES = ir.VectorType(ir.IntType(16), _WIDTH), ir.VectorType(_I32, _WIDTH)
_FLOATS = ir.VectorType(ir.FloatType(), _WIDTH)


def _packings() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: those lanes in order, in the last places."""
    due = np.arange(1 << _WIDTH)[:, None] >> np.arange(_WIDTH) & 1
    places: npt.NDArray[np.int32] = np.argsort(due, axis=1, kind="stable").astype(np.int32)
    return places


PACKINGS = _packings()


def _all(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * _WIDTH)


class _Loop:
    """Writes the loop's instructions."""

    def __init__(self, builder: Any, arrays: list[Any], table_bits: int, literal: int) -> None:
        self._b = builder
        self._table_bits, self._literal = table_bits, literal
        pointer = _I8.as_pointer()
        module = builder.module
        gather = ir.FunctionType(_LANES, [_LANES, pointer, _LANES, _LANES, _I8])
        self._gather = cgutils.get_or_insert_function(module, gather, "llvm.x86.avx2.gather.d.d.256")
        permute = ir.FunctionType(_LANES, [_LANES, _LANES])
        self._permute = cgutils.get_or_insert_function(module, permute, "llvm.x86.avx2.permd")
        self._ones = cgutils.get_or_insert_function(module, ir.FunctionType(_I64, [_I64]), "llvm.ctpop.i64")
        self._keys, spans, self._states, self._words, self._places, self._packings = arrays
        self._spans = builder.bitcast(spans, pointer)

    def _load(self, array: Any, kind: Any, at: Any) -> Any:
        loaded = self._b.load(self._b.bitcast(self._b.gep(array, [at]), kind.as_pointer()))
        loaded.align = 1
        return loaded

    def _store(self, value: Any, array: Any, at: Any) -> None:
        self._b.store(value, self._b.bitcast(self._b.gep(array, [at]), value.type.as_pointer())).align = 1

    def _look_up(self, key: Any) -> Any:
        # From an own vector of zeros, so that a gather does not wait for the one before.
        return self._b.call(
            self._gather, [_all(0), self._spans, self._b.zext(key, _LANES), _all(-1), ir.Constant(_I8, 4)]
        )

    def _mask(self, lanes: Any) -> Any:
        return self._b.zext(self._b.bitcast(lanes, _I8), _I64)

    def write(self, runs: int, lanes: int, stride: Any, room: Any, begin: Any, end: Any) -> None:
        """The loop over tokens ``[begin, end)``, last to first, of each of ``runs`` sub-blocks."""
        b = self._b
        vectors = lanes // _WIDTH
        states = [cgutils.alloca_once(b, _LANES) for _ in range(runs * vectors)]
        places = [cgutils.alloca_once(b, _I64) for _ in range(runs)]
        for number, state in enumerate(states):
            b.store(self._load(self._states, _LANES, ir.Constant(_I64, number * _WIDTH)), state)
        for run, place in enumerate(places):
            b.store(b.load(b.gep(self._places, [ir.Constant(_I64, run)])), place)
        with cgutils.for_range(b, b.udiv(b.sub(end, begin), ir.Constant(_I64, lanes))) as loop:
            first = b.sub(end, b.mul(b.add(loop.index, ir.Constant(_I64, 1)), ir.Constant(_I64, lanes)))
            for run in range(runs):
                number = ir.Constant(_I64, run)
                keys, words = b.add(first, b.mul(number, stride)), b.mul(number, room)
                for vector in reversed(range(vectors)):
                    at = b.add(keys, ir.Constant(_I64, vector * _WIDTH))
                    self._step(at, states[run * vectors + vector], places[run], words)
        for number, state in enumerate(states):
            self._store(b.load(state), self._states, ir.Constant(_I64, number * _WIDTH))
        for run, place in enumerate(places):
            b.store(b.load(place), b.gep(self._places, [ir.Constant(_I64, run)]))

    def _step(self, at: Any, state: Any, place: Any, words: Any) -> None:
        b = self._b
        key = self._load(self._keys, _WORDS, at)
        span = cgutils.alloca_once(b, _LANES)
        b.store(self._look_up(key), span)
        lacking = b.icmp_signed("==", b.load(span), _all(0))
        with b.if_then(b.icmp_signed("!=", b.bitcast(lacking, _I8), ir.Constant(_I8, 0)), likely=False):
            literal = b.select(lacking, b.or_(key, ir.Constant(_WORDS, [self._literal] * _WIDTH)), key)
            self._store(literal, self._keys, at)
            b.store(self._look_up(literal), span)
        freq, start = b.and_(b.load(span), _all(0xFFFF)), b.lshr(b.load(span), _all(16))
        x = b.load(state)
        due = b.icmp_signed(">=", b.lshr(x, _all(32 - self._table_bits)), freq)
        lanes = self._mask(due)
        order = self._load(self._packings, _LANES, b.mul(lanes, ir.Constant(_I64, _WIDTH)))
        packed = b.trunc(b.call(self._permute, [x, order]), _WORDS)
        here = b.load(place)
        self._store(packed, self._words, b.add(words, b.sub(here, ir.Constant(_I64, _WIDTH))))
        b.store(b.sub(here, b.call(self._ones, [lanes])), place)
        x = b.select(due, b.lshr(x, _all(16)), x)
        # A quarter less: rounding errs by less than that, and the quotient is then right or one too small.
        about = b.fsub(b.fdiv(b.uitofp(x, _FLOATS), b.sitofp(freq, _FLOATS)), ir.Constant(_FLOATS, [0.25] * _WIDTH))
        quotient = b.fptosi(about, _LANES)
        rest = b.sub(x, b.mul(quotient, freq))
        more = b.select(b.icmp_signed(">=", rest, freq), b.sub(_all(1 << self._table_bits), freq), _all(0))
        x = b.add(b.add(b.shl(quotient, _all(self._table_bits)), start), b.add(rest, more))
        b.store(x, state)


def vector_encoder(runs: int, lanes: int, table_bits: int, literal: int) -> Any:
    """A function for kernels that codes the tokens of ``runs`` sub-blocks side by side, from the last to the first.

    It takes ``keys`` (uint16), ``spans`` (uint32), ``states`` (uint32, rows of ``lanes``), ``words`` (uint16),
    ``places`` (int64, one for each run: where its words begin, replaced), :data:`PACKINGS`, ``stride`` and ``room``
    (how far apart runs lie in ``keys`` and in ``words``), and ``begin`` and ``end`` (multiples of ``lanes``); see
    :func:`maskreg.codec.rans.encode_tokens`. Words need room for one each, and for eight more. All arrays are
    C-contiguous.

    Args:
        runs: sub-blocks.
        lanes: of each; a multiple of 8.
        table_bits: frequencies of a table sum to that power of two.
        literal: bits that make any key that of its cell's literal; keys whose span is 0 are replaced by it.
    """

    @intrinsic
    def encode(  # type: ignore[no-untyped-def]
        typing_context, keys, spans, states, words, places, packings, stride, room, begin, end
    ):
        signature = types.void(keys, spans, states, words, places, packings, stride, room, begin, end)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            arrays = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(kinds[:6], args[:6], strict=True)
            ]
            numbers = [
                context.cast(builder, value, kind, types.int64) for kind, value in zip(kinds[6:], args[6:], strict=True)
            ]
            _Loop(builder, arrays, table_bits, literal).write(runs, lanes, *numbers)
            return context.get_dummy_value()

        return signature, generate

    return encode
