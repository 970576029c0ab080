"""Which build of the kernels this process uses.

An installation has one extension module per level; setup.py says what each needs. The best that the processor can run
is taken at the first call. ``MASKREG_KERNELS`` names another, to compare them::

    MASKREG_KERNELS=avx2 maskreg apply ...      no vectors of 512 bits

Each inner loop exists once, in C. A function that has one passes arrays to it::

    compiled = library()
    return compiled.lib.maskreg_count(compiled.read(values), values.size)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskreg.errors import ConfigError
from maskreg.extras import install_command

if TYPE_CHECKING:
    # Commands that compute nothing check the name, and do not wait for NumPy.
    import numpy.typing as npt

LEVELS = ("baseline", "avx2", "avx512")
"""Builds of the kernels, each faster than the one before where the processor has its instructions."""

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


_in_use: list[Library] = []


def library() -> Library:
    """The kernels that this process uses.

    Raises:
        ConfigError: none were compiled, or ``MASKREG_KERNELS`` names a level that this machine does not have.
    """
    if not _in_use:
        _in_use.append(_named(os.environ.get(_VARIABLE, "")))
    return _in_use[-1]


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use the kernels of a level, in all threads until the end of the block."""
    _in_use.append(_named(name))
    try:
        yield
    finally:
        _in_use.pop()


def available() -> tuple[str, ...]:
    """Levels that this machine can use, slowest first."""
    return tuple(level for level in LEVELS if _load(level))


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


def _named(name: str) -> Library:
    """The kernels of a level; the best for no name."""
    for level in reversed(LEVELS):
        if name in ("", level) and (found := _load(level)):
            return found
    if not available():
        # Without its cache, pip compiles again.
        again = install_command("", "--force-reinstall", "--no-deps", "--no-cache-dir")
        raise ConfigError("this installation lacks its compiled kernels", hint=f"install a C compiler, then {again}")
    raise ConfigError(
        f"{_VARIABLE} is {name!r}, but this machine has {', '.join(available())}", hint=f"unset {_VARIABLE}"
    )
