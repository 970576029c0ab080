"""Instructions on vectors of 8 lanes, for x86 processors with AVX2.

Where Numba's own vectorization does not suffice, a loop is emitted as LLVM instructions: a :class:`Writer` with the
loop's building blocks, wrapped in a Numba ``intrinsic`` that kernels call like a function. LLVM then compiles it into
the kernel, so there is no call and nothing to build or ship. Every such loop has a twin in plain Numba, which defines
what it computes and runs where :data:`AVAILABLE` is false.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features

WIDTH = 8


def _features() -> str:
    # Both variables are Numba's own. When a processor is named, only the features that are named with it count.
    if config.CPU_FEATURES is not None or config.CPU_NAME is not None:
        return config.CPU_FEATURES or ""
    return get_host_cpu_features() or ""


AVAILABLE = "+avx2" in _features().split(",")
"""Whether compiled code may use AVX2 on this machine."""

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
BYTES, WORDS = ir.VectorType(I8, WIDTH), ir.VectorType(ir.IntType(16), WIDTH)
INTS = ir.VectorType(I32, WIDTH)
FLOATS = ir.VectorType(ir.FloatType(), WIDTH)


def lanes_of(value: int) -> ir.Constant:
    """A vector of equal 32-bit constants."""
    return ir.Constant(INTS, [value] * WIDTH)


def long(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


class Writer:
    """Emits instructions; arguments and results are LLVM values."""

    def __init__(self, builder: Any) -> None:
        self._b = builder

    def _call(self, name: str, kind: Any, *arguments: Any) -> Any:
        signature = ir.FunctionType(kind, [argument.type for argument in arguments])
        return self._b.call(cgutils.get_or_insert_function(self._b.module, signature, name), arguments)

    def _load(self, array: Any, kind: Any, at: Any) -> Any:
        loaded = self._b.load(self._b.bitcast(self._b.gep(array, [at]), kind.as_pointer()))
        loaded.align = 1
        return loaded

    def _store(self, value: Any, array: Any, at: Any) -> None:
        self._b.store(value, self._b.bitcast(self._b.gep(array, [at]), value.type.as_pointer())).align = 1

    def _gather(self, array: Any, at: Any, scale: int) -> Any:
        # With a vector of zeros as the former value: a gather without one waits for the register's last use.
        base = self._b.bitcast(array, I8.as_pointer())
        arguments = lanes_of(0), base, at, lanes_of(-1), ir.Constant(I8, scale)
        return self._call("llvm.x86.avx2.gather.d.d.256", INTS, *arguments)

    def _permute(self, values: Any, order: Any) -> Any:
        return self._call("llvm.x86.avx2.permd", INTS, values, order)

    def _load_all(self, array: Any, count: int) -> list[Any]:
        """Variables with the first ``count`` vectors of an array."""
        variables = [cgutils.alloca_once(self._b, INTS) for _ in range(count)]
        for number, variable in enumerate(variables):
            self._b.store(self._load(array, INTS, long(number * WIDTH)), variable)
        return variables

    def _store_all(self, variables: list[Any], array: Any) -> None:
        for number, variable in enumerate(variables):
            self._store(self._b.load(variable), array, long(number * WIDTH))

    def _mask(self, lanes: Any) -> Any:
        """Flags of 8 lanes as the low bits of a 64-bit number."""
        return self._b.zext(self._b.bitcast(lanes, I8), I64)

    def _ones(self, mask: Any) -> Any:
        return self._call("llvm.ctpop.i64", I64, mask)


def data_of(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    """Pointers to the data of arrays."""
    return [context.make_array(kind)(context, builder, value).data for kind, value in zip(kinds, values, strict=True)]


def fields_of(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    """Pointers to the data of arrays, in order; tuples of arrays are taken apart."""
    pointers = []
    for kind, value in zip(kinds, values, strict=True):
        several = isinstance(kind, types.BaseTuple)
        members = cgutils.unpack_tuple(builder, value) if several else [value]
        pointers += data_of(context, builder, tuple(kind) if several else (kind,), members)
    return pointers
