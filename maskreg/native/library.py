"""Which build of the kernels this process uses.

Wheels hold one extension module per level; setup.py says what each needs. The best that the processor can run is taken
at the first call. ``MASKREG_KERNELS`` names another: to compare them, or to do without.

    MASKREG_KERNELS=avx2 maskreg apply ...      no vectors of 512 bits
    MASKREG_KERNELS=numpy maskreg apply ...     no compiled kernels: the same results, slowly

Every function with a kernel calls it first, and ends with the definition of what it computes, in NumPy::

    if compiled := library():
        return compiled.lib.maskreg_count(compiled.read(values), values.size)
    return int(np.count_nonzero(values))
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskreg.errors import ConfigError

if TYPE_CHECKING:
    # Commands that compute nothing check the name, and do not wait for NumPy.
    import numpy.typing as npt

LEVELS = ("baseline", "avx2", "avx512")
"""Builds of the kernels, each faster than the one before where the processor has its instructions."""

NUMPY = "numpy"
"""Stands for no compiled kernels."""

_VARIABLE = "MASKREG_KERNELS"
_C_TYPES = {
    "|i1": "int8_t[]",
    "<i2": "int16_t[]",
    "<i4": "int32_t[]",
    "<i8": "int64_t[]",
    "|u1": "uint8_t[]",
    "<u2": "uint16_t[]",
    "<u4": "uint32_t[]",
    "<u8": "uint64_t[]",
    "<f4": "float[]",
    "<f8": "double[]",
}
"""By NumPy's description of a dtype."""


class _Types(dict[Any, Any]):
    """C types by dtype. Each is added at its first use: only then is NumPy there for certain."""

    def __init__(self, ffi: Any) -> None:
        super().__init__()
        self._ffi = ffi

    def __missing__(self, dtype: Any) -> Any:
        self[dtype] = self._ffi.typeof(_C_TYPES[dtype.str])
        return self[dtype]


class Library:
    """Compiled kernels. Calls release the interpreter's lock. ``level``: one of :data:`LEVELS`."""

    def __init__(self, level: str, module: Any) -> None:
        self.level = level
        self.lib, self.ffi = module.lib, module.ffi
        self._types = _Types(module.ffi)

    def read(self, array: npt.NDArray[Any]) -> Any:
        """Pointer to an array that a kernel reads; it keeps the array alive."""
        return self.ffi.from_buffer(self._types[array.dtype], array)

    def write(self, array: npt.NDArray[Any]) -> Any:
        """Pointer to an array that a kernel fills; it keeps the array alive."""
        return self.ffi.from_buffer(
            self._types[array.dtype], array, True
        )  # writable; by keyword it takes twice as long


_in_use: list[Library | None] = []


def library() -> Library | None:
    """The kernels that this process uses; None to do without."""
    if not _in_use:
        name = os.environ.get(_VARIABLE, "")
        _in_use.append(_named(name) if name else next(filter(None, map(_load, reversed(LEVELS))), None))
    return _in_use[-1]


def switched_off() -> bool:
    """Whether ``MASKREG_KERNELS`` asks for no compiled kernels."""
    return os.environ.get(_VARIABLE) == NUMPY


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use kernels of a level, or none for ``numpy``, in all threads until the end of the block."""
    _in_use.append(_named(name))
    try:
        yield
    finally:
        _in_use.pop()


def available() -> tuple[str, ...]:
    """What this machine can use, slowest first: ``numpy`` always."""
    return (NUMPY, *(level for level in LEVELS if _load(level)))


@cache
def _load(level: str) -> Library | None:
    """The kernels of a level; None where they were not built, or the processor cannot run them."""
    try:
        base = import_module("maskreg.native._baseline")
        if LEVELS.index(level) > base.lib.maskreg_level():
            return None
        return Library(level, import_module(f"maskreg.native._{level}"))
    except ImportError:
        return None


def _named(name: str) -> Library | None:
    if name not in available():
        raise ConfigError(
            f"{_VARIABLE} is {name!r}, but this machine has {', '.join(available())}", hint=f"unset {_VARIABLE}"
        )
    return _load(name) if name in LEVELS else None
