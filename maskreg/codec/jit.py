"""How this room compiles its inner loops: once a machine, kept on disk, and never holding the interpreter's lock."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def kernel(function: FunctionT) -> FunctionT:
    """Compile a function of numbers and arrays.

    Kernels do not check indices: whatever comes from a block is checked before it is one.
    """
    try:
        compiled = njit(nogil=True, cache=True)(function)
        # Numba would compile anew when this function's file changes. But kernels contain the kernels that they call,
        # and those of an older version must not decode.
        compiled._cache._cache_file._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
    except (RuntimeError, AttributeError):
        # No folder here can keep compiled code, or nothing is compiled at all, or another Numba keeps it in other ways
        # than those above. Each process then compiles anew, which is slow but never wrong.
        compiled = njit(nogil=True)(function)
    return cast("FunctionT", compiled)


def is_compiled(function: Callable[..., object]) -> bool:
    """Whether a kernel's compiled code lies on disk, so that its first call does not take seconds."""
    store = getattr(getattr(function, "_cache", None), "_cache_file", None)
    # Numba's own; where it has changed, the worst is that people are not told what they wait for.
    index = getattr(store, "_load_index", None)
    return index is None or bool(index())


@cache
def _stamp(folder: Path) -> str:
    """Digest of the modules in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
