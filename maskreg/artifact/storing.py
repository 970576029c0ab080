"""Storing shards on threads, while the writer collects the rows of the next ones.

How an array is cut into chunks is known only when it has a full shard, or is complete. Until then its rows lie in a
*spool*, a file without a name, so that memory does not grow with the number of arrays and threads::

    caller's thread    rows, in the order of the tensors    fills a spool of 16 MiB for each array
    storing threads    a full spool each                    read, compress, sum, write, hash

One thread hashes and writes a shard in less time than a core needs to make it, by a factor of five. So from five cores
on, a single storing thread would hold up all others. Which thread stores a shard changes no byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from io import BufferedRandom
from tempfile import TemporaryFile
from typing import cast

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import ArrayLayout
from maskreg.artifact.shards import pack_shard
from maskreg.artifact.staging import StagingStore

Bytes = npt.NDArray[np.uint8]

_BUFFERED = 1 << 14  # bytes; rows of some arrays come eight bytes at a time


class Spool:
    """Rows of a shard that is not complete, in a file without a name.

    Attributes:
        size: bytes written.
    """

    def __init__(self, store: StagingStore) -> None:
        """Make one beside what is stored."""
        self._store, self.size = store, 0
        with store.errors("write", "an array"):
            self._file = cast("BufferedRandom", TemporaryFile(dir=store.root, buffering=_BUFFERED))  # noqa: SIM115

    def write(self, rows: Bytes) -> None:
        """Append the bytes of rows."""
        with self._store.errors("write", "an array"):
            self._file.write(rows.data)
        self.size += rows.size

    def chunks(self, size: int) -> Iterator[Bytes]:
        """What was written, in chunks of so many bytes; the last one can be smaller."""
        with self._store.errors("write", "an array"):
            self._file.seek(0)
            for start in range(0, self.size, size):
                yield np.frombuffer(self._file.read(min(size, self.size - start)), np.uint8)

    def clear(self) -> None:
        """Begin anew, in the same file."""
        self._file.seek(0)
        self.size = 0

    def close(self) -> None:
        """Close the file, with which its content is gone."""
        # Not the file, which would write what it has buffered, perhaps to a disk that is full.
        self._file.raw.close()


class ShardStorer:
    """Stores shards on threads. At most as many as there are threads are on the way, each in a spool of its own."""

    def __init__(self, store: StagingStore, jobs: int) -> None:
        """Store into ``store`` on ``jobs`` threads, which start with the first shard."""
        self._store, self._jobs = store, jobs
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="maskreg-store")
        self._running: deque[Future[Spool]] = deque()
        self._spare: list[Spool] = []
        self._spools = ExitStack()

    def spool(self) -> Spool:
        """An empty spool."""
        if self._spare:
            return self._spare.pop()
        spool = Spool(self._store)
        self._spools.callback(spool.close)
        return spool

    def put(self, layout: ArrayLayout, number: int, spool: Spool) -> None:
        """Store a shard, soon; the spool belongs to this object from now on."""
        while len(self._running) >= self._jobs:
            self._spare.append(self._running.popleft().result())
        self._running.append(self._pool.submit(self._stored, layout, number, spool))

    def finish(self) -> None:
        """Wait until all shards are stored, and close the spools; on NFS, open ones have names in the folder."""
        while self._running:
            self._running.popleft().result()
        self._spools.close()

    def close(self) -> None:
        """Wait for what is being stored, and drop the rest."""
        self._pool.shutdown(cancel_futures=True)
        self._spools.close()

    def _stored(self, layout: ArrayLayout, number: int, spool: Spool) -> Spool:
        pieces = pack_shard(layout, spool.chunks(layout.chunk_bytes))
        self._store.put_pieces(layout.shard_key(number), pieces)
        spool.clear()
        return spool
