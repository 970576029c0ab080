"""Where the time of a codec goes: the CPU seconds of each compiled kernel, and of everything around them.

The functions that maskreg's compiled library offers are wrapped with a clock. So the profile knows nothing of a codec,
and needs no profiler::

    lib.maskreg_count_keys(...)   ->   start = clock(); lib.maskreg_count_keys(...); seconds["count keys"] += ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from maskreg.native import library

REST = "rest"
"""The key of what is no kernel: Python, NumPy, and memory that is touched for the first time."""

_PREFIX = "maskreg_"


class _Clocked:
    """A library whose functions note their CPU seconds."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self.seconds: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._lib, name)
        if not callable(function):
            return function
        label = name.removeprefix(_PREFIX).replace("_", " ")

        def call(*args: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds[label] = self.seconds.get(label, 0.0) + time.thread_time() - start

        return call


def shares(work: Callable[[], object], repeat: int = 3) -> Mapping[str, float]:
    """CPU seconds of each kernel in the fastest repetition of ``work`` on this thread, most first, then the rest."""
    profiles = [_profile(work) for _ in range(repeat)]
    return min(profiles, key=lambda seconds: sum(seconds.values()))


def _profile(work: Callable[[], object]) -> dict[str, float]:
    compiled = library()
    if compiled is None:
        start = time.thread_time()
        work()
        return {REST: time.thread_time() - start}
    plain = compiled.lib
    compiled.lib = clocked = _Clocked(plain)
    try:
        start = time.thread_time()
        work()
        total = time.thread_time() - start
    finally:
        compiled.lib = plain
    kernels = sorted(clocked.seconds.items(), key=lambda item: -item[1])
    return {**dict(kernels), REST: max(0.0, total - sum(clocked.seconds.values()))}
