"""Flat arrays: one that grows while it is written, and one that is read row by row.

Each is a Zarr array, which any Zarr reader opens. Here its shards (:mod:`maskreg.artifact.shards`) are written and read
directly.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import ARRAYS, CHUNK_BYTES, GROUP, SHARD_BYTES, ArrayLayout
from maskreg.artifact.objects import VerifiedObjects
from maskreg.artifact.shards import pack_frame, read_chunk, stored_chunk, unpack_frame
from maskreg.artifact.storing import ShardStorer
from maskreg.errors import CorruptError

Bytes = npt.NDArray[np.uint8]

_WORTH_COMPRESSING = 0.9


class GrowingArray:
    """Collects rows of one array, in a spool of one shard, and has full shards stored.

    Rows have a fixed shape (``()`` for a 1-D array); the array grows along the first axis.
    """

    def __init__(self, storer: ShardStorer, name: str, *, compress: bool = False) -> None:
        self._storer = storer
        self._name = name
        self._compress = compress
        self._compressed = False
        self._spool = storer.spool()
        self._shards = 0
        self._row_bytes = ArrayLayout(name, 0).row_bytes
        self.length = 0
        """Rows appended so far."""

    @property
    def layout(self) -> ArrayLayout:
        """The layout of what was appended so far; final after :meth:`finish`."""
        return ArrayLayout(self._name, self.length, self._compressed)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows; they are copied, and stored when a shard is full."""
        if rows.dtype != ARRAYS[self._name].dtype or rows.shape[1:] != ARRAYS[self._name].row:
            raise ValueError(f"{self._name}: rows of {rows.dtype} {rows.shape[1:]}")
        self.length += len(rows)
        data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        while data.size:
            taken = data[: SHARD_BYTES - self._spool.size]
            self._spool.write(taken)
            data = data[taken.size :]
            if self._spool.size == SHARD_BYTES:
                self._store()
                self._spool = self._storer.spool()

    def finish(self) -> None:
        """Have the last rows stored."""
        if self._spool.size:
            self._store()

    def _store(self) -> None:
        spool = self._spool
        if not self._shards and self._compress:
            frames = (pack_frame(chunk, 1) for chunk in spool.chunks(CHUNK_BYTES))
            self._compressed = sum(map(len, frames)) < _WORTH_COMPRESSING * spool.size
        # The array might still grow, but a shard that is not its last has chunks of one size.
        layout = ArrayLayout(self._name, max(self.length, spool.size // self._row_bytes), self._compressed)
        self._storer.put(layout, self._shards, spool)
        self._shards += 1


class StoredArray:
    """A stored array, read by rows. Safe to use from several threads.

    Rows are copied out of verified shards, which stay in memory for a while. Of compressed arrays the chunks that were
    read last stay decompressed, since a chunk holds the rows of thousands of small tensors. Where there is no room for
    shards, only chunks are read and stay.
    """

    def __init__(self, objects: VerifiedObjects, layout: ArrayLayout, max_bytes: int) -> None:
        """Read the array of a layout."""
        self.layout = layout
        self._objects = objects
        self._max_bytes = max_bytes
        self._chunks: OrderedDict[int, Bytes] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows ``[start, stop)``, an array of its own."""
        layout = self.layout
        data = np.empty(max(0, stop - start) * layout.row_bytes, np.uint8)
        self.read(start, stop, data)
        return data.view(np.dtype(layout.form.dtype).newbyteorder("<")).reshape(-1, *layout.form.row)

    def read(self, start: int, stop: int, into: Bytes) -> None:
        """Fill ``into`` with the bytes of rows ``[start, stop)``."""
        layout = self.layout
        if not 0 <= start <= stop <= layout.length:
            raise CorruptError(f"{GROUP}/{layout.name}", f"[{start}, {stop}) is outside its {layout.length} rows")
        first, last = start * layout.row_bytes, stop * layout.row_bytes
        size, per_shard = layout.chunk_bytes, layout.chunks_per_shard
        position = first
        while position < last:
            shard = position // (size * per_shard)
            with self._chunks_of(layout.shard_key(shard)) as chunk_of:
                end = min(last, (shard + 1) * size * per_shard)
                while position < end:
                    number = position // size
                    chunk = chunk_of(number)
                    taken = chunk[position - number * size : end - number * size]
                    into[position - first : position - first + taken.size] = taken
                    position += taken.size
                    del chunk, taken  # it need not stay while the next one is read

    @contextmanager
    def _chunks_of(self, key: str) -> Iterator[Callable[[int], Bytes]]:
        """What gives chunks of a shard, by their numbers in the array."""
        layout = self.layout
        if not self._objects.holds_shards:

            def read(number: int) -> memoryview:
                with self._objects.opened(key, max_bytes=self._max_bytes) as (file, size):
                    return read_chunk(layout, key, file, size, number)

            yield lambda number: self._kept(number, read)
            return
        with self._objects.borrow(key, max_bytes=self._max_bytes) as data:
            if layout.compressed:
                yield lambda number: self._kept(number, partial(stored_chunk, layout, data))
            else:
                in_shard = layout.chunks_per_shard
                yield lambda number: np.frombuffer(stored_chunk(layout, data, number % in_shard), np.uint8)

    def _kept(self, number: int, stored: Callable[[int], memoryview]) -> Bytes:
        """A chunk, which stays in memory for a while; ``stored`` reads it by its number in its shard."""
        with self._lock:
            chunk = self._chunks.get(number)
            if chunk is not None:
                self._chunks.move_to_end(number)
                return chunk
            while len(self._chunks) >= self._objects.chunks:
                self._chunks.popitem(last=False)
        # Without the lock: two threads can decode the same chunk, but none waits for a chunk that it does not need.
        chunk = self._decoded(stored(number % self.layout.chunks_per_shard))
        with self._lock:
            self._chunks[number] = chunk
        return chunk

    def _decoded(self, stored: memoryview) -> Bytes:
        layout = self.layout
        if not layout.compressed:
            return np.frombuffer(stored, np.uint8)
        chunk = np.empty(layout.chunk_bytes, np.uint8)
        try:
            unpack_frame(stored, chunk)
        except ValueError as error:
            raise CorruptError(f"{GROUP}/{layout.name}", f"does not decode ({error})") from error
        return chunk
