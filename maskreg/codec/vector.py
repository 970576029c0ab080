"""The decoding loop in vectors of eight lanes, for x86 processors with AVX2; all others decode lane by lane.

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
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

_WIDTH = 8


def _features() -> str:
    # Both variables are Numba's own; a processor that was named has what is said with its name.
    if config.CPU_FEATURES is not None or config.CPU_NAME is not None:
        return config.CPU_FEATURES or ""
    return get_host_cpu_features() or ""


AVAILABLE = "+avx2" in _features().split(",")
"""Whether compiled code may use AVX2 here."""


def _permutations() -> npt.NDArray[np.int32]:
    """For each set of due lanes, int32 ``[256, 8]``: the place of each lane's word among those that are due."""
    due = np.arange(1 << _WIDTH)[:, None] >> np.arange(_WIDTH) & 1
    places: npt.NDArray[np.int32] = ((np.cumsum(due, axis=1) - 1) * due).astype(np.int32)
    return places


PERMUTATIONS = _permutations()

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES, _WORDS = ir.VectorType(_I8, _WIDTH), ir.VectorType(ir.IntType(16), _WIDTH)
_LANES = ir.VectorType(_I32, _WIDTH)


def _all(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * _WIDTH)


class _Loop:
    """Writes the loop's instructions."""

    def __init__(self, builder: Any, arrays: list[Any]) -> None:
        self._b = builder
        pointer = _I8.as_pointer()
        module = builder.module
        gather = ir.FunctionType(_LANES, [_LANES, pointer, _LANES, _LANES, _I8])
        self._gather_call = cgutils.get_or_insert_function(module, gather, "llvm.x86.avx2.gather.d.d.256")
        permute = ir.FunctionType(_LANES, [_LANES, _LANES])
        self._permute = cgutils.get_or_insert_function(module, permute, "llvm.x86.avx2.permd")
        self._ones = cgutils.get_or_insert_function(module, ir.FunctionType(_I64, [_I64]), "llvm.ctpop.i64")
        (self._words, self._cells, starts, table, self._states, self._tokens, self._places, self._orders) = arrays
        self._starts, self._table = builder.bitcast(starts, pointer), builder.bitcast(table, pointer)

    def _load(self, array: Any, kind: Any, at: Any) -> Any:
        loaded = self._b.load(self._b.bitcast(self._b.gep(array, [at]), kind.as_pointer()))
        loaded.align = 1
        return loaded

    def _store(self, value: Any, array: Any, at: Any) -> None:
        self._b.store(value, self._b.bitcast(self._b.gep(array, [at]), value.type.as_pointer())).align = 1

    def _gather(self, array: Any, at: Any) -> Any:
        # From an own vector of zeros, so that a gather does not wait for the one before.
        return self._b.call(self._gather_call, [_all(0), array, at, _all(-1), ir.Constant(_I8, 4)])

    def write(
        self, runs: int, lanes: int, stride: int, room: int, count: Any, token_bits: tuple[int, int, int]
    ) -> None:
        """The whole loop over ``count`` tokens of each of ``runs`` sub-blocks; the arrays' rows are that far apart."""
        b = self._b
        vectors = lanes // _WIDTH
        states = [cgutils.alloca_once(b, _LANES) for _ in range(runs * vectors)]
        places = [cgutils.alloca_once(b, _I64) for _ in range(runs)]
        for number, state in enumerate(states):
            b.store(self._load(self._states, _LANES, ir.Constant(_I64, number * _WIDTH)), state)
        for place in places:
            b.store(ir.Constant(_I64, 0), place)
        with cgutils.for_range(b, b.udiv(count, ir.Constant(_I64, lanes))) as loop:
            first = b.mul(loop.index, ir.Constant(_I64, lanes))
            for run in range(runs):
                for vector in range(vectors):
                    at = b.add(first, ir.Constant(_I64, run * stride + vector * _WIDTH))
                    self._step(at, states[run * vectors + vector], places[run], run * room, token_bits)
        for number, state in enumerate(states):
            self._store(b.load(state), self._states, ir.Constant(_I64, number * _WIDTH))
        for run, place in enumerate(places):
            b.store(b.load(place), b.gep(self._places, [ir.Constant(_I64, run)]))

    def _step(self, at: Any, state: Any, place: Any, words: int, token_bits: tuple[int, int, int]) -> None:
        b = self._b
        slot_shift, freq_shift, table_bits = token_bits
        mask = _all((1 << table_bits) - 1)
        start = self._gather(self._starts, b.zext(self._load(self._cells, _BYTES, at), _LANES))
        x = b.load(state)
        entry = self._gather(self._table, b.add(start, b.and_(x, mask)))
        self._store(b.trunc(b.and_(entry, _all((1 << slot_shift) - 1)), _BYTES), self._tokens, at)
        slot = b.and_(b.lshr(entry, _all(slot_shift)), mask)
        x = b.add(b.mul(b.lshr(entry, _all(freq_shift)), b.lshr(x, _all(table_bits))), slot)
        due = b.icmp_unsigned("<", x, _all(1 << 16))
        lanes = b.zext(b.bitcast(due, _I8), _I64)
        here = b.load(place)
        near = b.zext(self._load(self._words, _WORDS, b.add(here, ir.Constant(_I64, words))), _LANES)
        order = self._load(self._orders, _LANES, b.mul(lanes, ir.Constant(_I64, _WIDTH)))
        x = b.select(due, b.or_(b.shl(x, _all(16)), b.call(self._permute, [near, order])), x)
        b.store(x, state)
        b.store(b.add(here, b.call(self._ones, [lanes])), place)


def vector_decoder(runs: int, lanes: int, stride: int, room: int, token_bits: tuple[int, int, int]) -> Any:
    """A function for kernels that decodes the tokens of ``runs`` sub-blocks side by side.

    It takes ``words`` (uint16, rows of ``room``), ``cells`` (uint8, rows of ``stride``), ``starts`` (uint32), ``table``
    (uint32), ``states`` (uint32, rows of ``lanes``), ``tokens`` (uint8, rows of ``stride``), ``places`` (int64, one for
    each run: the words taken), :data:`PERMUTATIONS` and ``count``, a multiple of ``lanes``; see
    :func:`maskreg.codec.rans.decode_tokens`. All arrays are C-contiguous.

    Args:
        runs: sub-blocks.
        lanes: of each; a multiple of 8.
        stride: of ``cells`` and ``tokens``.
        room: of ``words``; at least ``count + 8``.
        token_bits: where in a table's entry the slot and the frequency begin, and the table's bits.
    """

    @intrinsic
    def decode(  # type: ignore[no-untyped-def]
        typing_context, words, cells, starts, table, states, tokens, places, orders, count
    ):
        signature = types.void(words, cells, starts, table, states, tokens, places, orders, count)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, values = signature.args[:-1], args[:-1]
            arrays = [context.make_array(k)(context, builder, v).data for k, v in zip(kinds, values, strict=True)]
            count = context.cast(builder, args[-1], signature.args[-1], types.int64)
            _Loop(builder, arrays).write(runs, lanes, stride, room, count, token_bits)
            return context.get_dummy_value()

        return signature, generate

    return decode
