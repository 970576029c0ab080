"""Ranges of words of several tensors, and the threads that work on them.

Each thread takes the next free range, so all are busy until the last one, however the tensors are sized. The
rank index tells which entries of the state belong to a range, so threads never write to the same place and need no
lock::

    words of two tensors     0 . . . 8191   8192 . . 9999   |   0 . . . 99
    range                    0              1               |   2             ends = 2 3
    tensor                   0              0               |   1
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import torch

RANGE = 1 << 13
"""Words of a range: half a million coordinates, about half a millisecond."""


class Ranges:
    """All words of some tensors, to be worked on once.

    Attributes:
        size: words of a range; the last of a tensor can have fewer.
        ends: int64 ``[tensors]``, how many ranges a tensor and all before it have.
        taken: int64 ``[1]``, how many of them compiled kernels have taken.
    """

    def __init__(self, words: Sequence[int]) -> None:
        """Divide tensors of so many words."""
        self.size = RANGE
        self._words = words
        self.ends = np.cumsum([-(-count // self.size) for count in words], dtype=np.int64)
        self.taken = np.zeros(1, np.int64)

    def __len__(self) -> int:
        """How many there are."""
        return int(self.ends[-1]) if self.ends.size else 0

    def numbers(self) -> list[slice]:
        """The ranges of each tensor."""
        return [slice(begin, end) for begin, end in pairwise([0, *self.ends.tolist()])]

    def each(self, work: Callable[[int, int], object]) -> None:
        """Call ``work`` with the first word of every range and one past its last, on this and other threads."""
        # Of a list: threads can share its iterator, where a generator would raise.
        spans = [(at, min(at + self.size, count)) for count in self._words for at in range(0, count, self.size)]
        pending = iter(spans)

        def take() -> None:
            for begin, end in pending:
                work(begin, end)

        self.together(take)

    def together(self, work: Callable[[], object]) -> None:
        """Call ``work``, which takes ranges until none is left, on this thread and others."""
        threads = min(torch.get_num_threads(), len(self)) - 1
        futures = [_pool(os.getpid(), threads).submit(work) for _ in range(threads)]
        work()
        for future in futures:
            future.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of a process; keyed by its id, because a fork inherits the object but not the threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"maskreg-{process}")
