"""Compiling inner loops, on first use, and keeping the machine code on disk.

A kernel is a Python function that Numba compiles when it is first called, for the types that it is called with. Why not
ahead of time: wheels would have to be built for each platform and processor, while this uses the vector instructions of
the machine it runs on. Why lazily: the codec's kernels take some 20 seconds to compile, which only who codes a block
should pay, and only once a machine:

    first call      compile, save beside the module (or in NUMBA_CACHE_DIR)
    later process   load, in milliseconds
    source changed  compile again

Numba decides by the date of the function's own file whether to compile again. But a kernel contains the machine code of
the kernels that it calls, perhaps from other files; after an update it would go on decoding with the old ones. So here
the decision is by a digest of every module in the function's folder, and of this one, whose instructions go into all.

Kernels release the interpreter's lock: blocks are coded on several threads.
"""

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
"""What unpickling a truncated or damaged file raises, by the documentation of pickle and by trial."""


class _Kept(FunctionCache):  # type: ignore[misc]
    """Machine code on disk. It only ever helps: what cannot be read is compiled, what cannot be written is not kept."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
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
            # The disk is full or read-only: the next process compiles again.
            return
        except _DAMAGED:
            # Saving reads the index first. A damaged one is replaced.
            self.flush()
            super().save_overload(signature, compiled)

    def has_any(self) -> bool:
        """Whether machine code of the function is on disk, for any processor."""
        try:
            return bool(self._cache_file._load_index())
        except _DAMAGED:
            return False


def kernel(function: FunctionT) -> FunctionT:
    """Have a function of numbers and arrays compiled on its first call.

    Kernels do not check indices: numbers that come from outside are checked before they are used as one.

    Raises:
        ConfigError: the environment forbids compiling. Run as Python, kernels would be wrong: their integers wrap.
    """
    if config.DISABLE_JIT:
        raise ConfigError("NUMBA_DISABLE_JIT is set, but inner loops must be compiled", hint="unset NUMBA_DISABLE_JIT")
    compiled = njit(nogil=True)(function)
    # Without a folder to write to, each process compiles again; NUMBA_CACHE_DIR can name one.
    with suppress(RuntimeError):
        compiled._cache = _Kept(function)
    return cast("FunctionT", compiled)


def is_compiled(function: Callable[..., object]) -> bool:
    """Whether a kernel's machine code is on disk, so that its first call does not take seconds."""
    kept = getattr(function, "_cache", None)
    return isinstance(kept, _Kept) and kept.has_any()


@cache
def _stamp(folder: Path) -> str:
    """Digest of the modules in a folder, and of those in this one."""
    digest = hashlib.sha256()
    for source in (folder, Path(__file__).parent):
        for path in sorted(source.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
