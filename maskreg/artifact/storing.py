"""Threads that store the shards of an artifact, while its writer fills the next ones.

::

    caller's thread    rows, in the order of the tensors    fills memory of 16 MiB for each array
    storing threads    a full shard each                    compress, sum, write, hash

One thread hashes and writes a shard in less time than a core needs to make it, by a factor of five. So from five cores
on, whoever stored shards itself would be what all of them wait for. Which thread stores a shard changes no byte.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from maskreg.artifact.metadata import ArrayLayout
from maskreg.artifact.shards import pack_shard
from maskreg.artifact.staging import StagingStore

if TYPE_CHECKING:
    Bytes = npt.NDArray[np.uint8]


class ShardStorer:
    """Stores shards on threads. At most as many as there are threads are on the way, each in memory of its own."""

    def __init__(self, store: StagingStore, jobs: int) -> None:
        """Store into ``store`` on ``jobs`` threads, which start with the first shard."""
        self._store, self._jobs = store, jobs
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="maskreg-store")
        self._running: deque[Future[Bytes]] = deque()
        self._spare: list[Bytes] = []

    def memory(self) -> Bytes:
        """Memory to fill: that of a shard that is stored, or none."""
        return self._spare.pop() if self._spare else np.empty(0, np.uint8)

    def put(self, layout: ArrayLayout, number: int, memory: Bytes, size: int) -> None:
        """Store a shard, soon.

        Args:
            layout: of its array.
            number: of the shard.
            memory: uint8, which belongs to this object from now on.
            size: bytes of it that are the shard's rows.

        Raises:
            MaskregError: an earlier shard could not be stored.
        """
        while len(self._running) >= self._jobs:
            self._spare.append(self._running.popleft().result())
        self._running.append(self._pool.submit(self.store, layout, number, memory, size))

    def finish(self) -> None:
        """Wait until all shards are stored.

        Raises:
            MaskregError: one could not be.
        """
        while self._running:
            self._running.popleft().result()
        self._spare.clear()

    def close(self) -> None:
        """Wait for what is being stored, and forget the rest."""
        self._pool.shutdown(cancel_futures=True)

    def store(self, layout: ArrayLayout, number: int, memory: Bytes, size: int) -> Bytes:
        """Store a shard on this thread, and return its memory; see :meth:`put`."""
        self._store.put_pieces(layout.shard_key(number), pack_shard(layout, memory[:size]))
        return memory
