"""Compiling inner loops: once a machine, kept on disk, and never holding the interpreter's lock."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core.caching import FunctionCache

from maskreg.errors import ConfigError

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

_DAMAGED = (
    pickle.UnpicklingError, AttributeError, EOFError, ImportError, KeyError, IndexError, MemoryError, OSError,
    OverflowError, RecursionError, SystemError, TypeError, ValueError,
)  # fmt: skip
"""What a file that was cut short or damaged makes of unpickling, by the documentation of pickle and by trial."""


class _Kept(FunctionCache):  # type: ignore[misc]
    """Compiled code on disk. It only ever helps: what cannot be read or written is compiled anew."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        # Numba would compile anew when this function's file changes. But kernels contain the kernels that they call,
        # and those of an older version must not decode.
        self._cache_file._source_stamp = _stamp(Path(function.__code__.co_filename).parent)

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except _DAMAGED:
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        try:
            super().save_overload(signature, compiled)
        except OSError:
            # The disk is full, or not to be written: the next process compiles again.
            return
        except _DAMAGED:
            # Saving reads what is there first. Nothing of a damaged index is worth keeping.
            self.flush()
            super().save_overload(signature, compiled)

    def has_any(self) -> bool:
        """Whether some compiled code of the function is there, for whatever processor."""
        try:
            return bool(self._cache_file._load_index())
        except _DAMAGED:
            return False


def kernel(function: FunctionT) -> FunctionT:
    """Compile a function of numbers and arrays.

    Kernels do not check indices: whatever comes from a block is checked before it is one.

    Raises:
        ConfigError: the environment forbids to compile. Integers of kernels wrap around, those of Python do not.
    """
    if config.DISABLE_JIT:
        raise ConfigError("NUMBA_DISABLE_JIT is set, and inner loops must be compiled", hint="unset it")
    compiled = njit(nogil=True)(function)
    # Where no folder can keep compiled code, each process compiles anew; NUMBA_CACHE_DIR names one that can.
    with suppress(RuntimeError):
        compiled._cache = _Kept(function)
    return cast("FunctionT", compiled)


def is_compiled(function: Callable[..., object]) -> bool:
    """Whether a kernel's compiled code lies on disk, so that its first call does not take seconds."""
    kept = getattr(function, "_cache", None)
    return isinstance(kept, _Kept) and kept.has_any()


@cache
def _stamp(folder: Path) -> str:
    """Digest of the modules in a folder, and of those here, which write instructions into any."""
    digest = hashlib.sha256()
    for place in (folder, Path(__file__).parent):
        for path in sorted(place.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
