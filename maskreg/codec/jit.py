"""How this room compiles its inner loops: once a machine, kept on disk, and never holding the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def kernel(function: FunctionT) -> FunctionT:
    """Compile a function of numbers and arrays.

    Kernels do not check indices: whatever comes from a block is checked before it is one.
    """
    try:
        compiled = njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # No folder here can keep compiled code, so each process compiles anew.
        compiled = njit(nogil=True)(function)
    return cast("FunctionT", compiled)
