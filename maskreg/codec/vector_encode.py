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

from maskreg.jit.vector import FLOATS, I8, I64, INTS, WIDTH, WORDS, Writer, data_of, lanes_of, long


def _packings() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: those lanes in order, in the last places."""
    due = np.arange(1 << WIDTH)[:, None] >> np.arange(WIDTH) & 1
    places: npt.NDArray[np.int32] = np.argsort(due, axis=1, kind="stable").astype(np.int32)
    return places


PACKINGS = _packings()


class _Encoding(Writer):
    """The loop of :func:`vector_encoder`."""

    def __init__(self, builder: Any, arrays: list[Any], table_bits: int, literal: int) -> None:
        super().__init__(builder)
        (self._keys, self._spans, self._states, self._words, self._places, self._packings) = arrays
        self._table_bits, self._literal = table_bits, literal

    def write(self, runs: int, lanes: int, stride: Any, room: Any, begin: Any, end: Any) -> None:
        """The loop over tokens ``[begin, end)``, last to first, of each of ``runs`` sub-blocks."""
        b = self._b
        vectors = lanes // WIDTH
        states = self._load_all(self._states, runs * vectors)
        places = [cgutils.alloca_once(b, I64) for _ in range(runs)]
        for run, place in enumerate(places):
            b.store(b.load(b.gep(self._places, [long(run)])), place)
        with cgutils.for_range(b, b.udiv(b.sub(end, begin), long(lanes))) as loop:
            first = b.sub(end, b.mul(b.add(loop.index, long(1)), long(lanes)))
            for run in range(runs):
                number = long(run)
                keys, words = b.add(first, b.mul(number, stride)), b.mul(number, room)
                for vector in reversed(range(vectors)):
                    at = b.add(keys, long(vector * WIDTH))
                    self._step(at, states[run * vectors + vector], places[run], words)
        self._store_all(states, self._states)
        for run, place in enumerate(places):
            b.store(b.load(place), b.gep(self._places, [long(run)]))

    def _look_up(self, key: Any) -> Any:
        return self._gather(self._spans, self._b.zext(key, INTS), 4)

    def _step(self, at: Any, state: Any, place: Any, words: Any) -> None:
        b = self._b
        key = self._load(self._keys, WORDS, at)
        span = cgutils.alloca_once(b, INTS)
        b.store(self._look_up(key), span)
        lacking = b.icmp_signed("==", b.load(span), lanes_of(0))
        with b.if_then(b.icmp_signed("!=", b.bitcast(lacking, I8), ir.Constant(I8, 0)), likely=False):
            literal = b.select(lacking, b.or_(key, ir.Constant(WORDS, [self._literal] * WIDTH)), key)
            self._store(literal, self._keys, at)
            b.store(self._look_up(literal), span)
        freq, start = b.and_(b.load(span), lanes_of(0xFFFF)), b.lshr(b.load(span), lanes_of(16))
        x = b.load(state)
        due = b.icmp_signed(">=", b.lshr(x, lanes_of(32 - self._table_bits)), freq)
        lanes = self._mask(due)
        order = self._load(self._packings, INTS, b.mul(lanes, long(WIDTH)))
        packed = b.trunc(self._permute(x, order), WORDS)
        here = b.load(place)
        self._store(packed, self._words, b.add(words, b.sub(here, long(WIDTH))))
        b.store(b.sub(here, self._ones(lanes)), place)
        x = b.select(due, b.lshr(x, lanes_of(16)), x)
        # A quarter less: rounding errs by less than that, and the quotient is then right or one too small.
        about = b.fsub(b.fdiv(b.uitofp(x, FLOATS), b.sitofp(freq, FLOATS)), ir.Constant(FLOATS, [0.25] * WIDTH))
        quotient = b.fptosi(about, INTS)
        rest = b.sub(x, b.mul(quotient, freq))
        more = b.select(b.icmp_signed(">=", rest, freq), b.sub(lanes_of(1 << self._table_bits), freq), lanes_of(0))
        x = b.add(b.add(b.shl(quotient, lanes_of(self._table_bits)), start), b.add(rest, more))
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
            arrays = data_of(context, builder, kinds[:6], args[:6])
            numbers = [
                context.cast(builder, value, kind, types.int64) for kind, value in zip(kinds[6:], args[6:], strict=True)
            ]
            _Encoding(builder, arrays, table_bits, literal).write(runs, lanes, *numbers)
            return context.get_dummy_value()

        return signature, generate

    return encode
