"""Flat Zarr arrays: one that grows while it is written, and one that is read row by row.

An array consists of shards, one object each, and a shard of chunks followed by an index (see
:class:`~maskreg.artifact.metadata.ArrayLayout` for their sizes)::

    chunk 0 | chunk 1 | ... | index: (offset, size) of each chunk, uint64 | crc32c of the index

An absent chunk has offset and size 2^64 - 1, and Zarr reads it as zeros. So every chunk is written, and ``check_shard``
refuses a shard in which one is absent. It also refuses a chunk that lies outside the shard, or whose Zstandard header
announces another size than a chunk has, before anything is decompressed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from maskreg.artifact.layout import GROUP
from maskreg.artifact.metadata import ARRAYS, SHARD_BYTES, ArrayLayout
from maskreg.artifact.zstd import content_bytes, pack_frame
from maskreg.errors import CorruptError, FormatError

_WORTH_COMPRESSING = 0.9

CACHED_CHUNKS = 4
"""Decoded chunks of an array, of 1 MiB at most, that stay in memory: as many as neighboring blocks are read from."""


class GrowingArray:
    """Collects rows of one array and writes them shard by shard, in the memory of one shard.

    Rows have a fixed shape (``()`` for a 1-D array); the array grows along the first axis.
    """

    def __init__(self, group: zarr.Group, name: str, *, compress: bool = False) -> None:
        self._group = group
        self._name = name
        self._dtype, self._row = np.dtype(ARRAYS[name].dtype), ARRAYS[name].row
        self._compress = compress
        self._compressed = False
        self._array: zarr.Array[Any] | None = None
        self._pending: list[npt.NDArray[Any]] = []
        self._pending_rows = 0
        self._shard_rows = SHARD_BYTES // ArrayLayout(name, 0).row_bytes
        self.length = 0
        """Rows appended so far."""

    @property
    def layout(self) -> ArrayLayout:
        """The layout of what was appended so far; final after :meth:`finish`."""
        return ArrayLayout(self._name, self.length, self._compressed)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows; they are written when a shard is full."""
        self.length += len(rows)
        while self._pending_rows + len(rows) >= self._shard_rows:
            take = self._shard_rows - self._pending_rows
            self._pending.append(rows[:take])
            rows = rows[take:]
            self._write(np.concatenate(self._pending))
            self._pending, self._pending_rows = [], 0
        if len(rows):
            self._pending.append(rows)
            self._pending_rows += len(rows)

    def finish(self) -> None:
        """Write the last rows; creates the array even when it is empty."""
        last = np.concatenate(self._pending) if self._pending else np.empty((0, *self._row), self._dtype)
        if len(last) or self._array is None:
            self._write(last)
        self._pending, self._pending_rows = [], 0

    def _write(self, rows: npt.NDArray[Any]) -> None:
        if self._array is None:
            self._array = self._create(rows)
        start = self._array.shape[0]
        if len(rows):
            self._array.resize((start + len(rows), *self._row))
            self._array[start:] = rows

    def _create(self, first: npt.NDArray[Any]) -> zarr.Array[Any]:
        layout = ArrayLayout(self._name, len(first))
        compressors: list[Any] = [Crc32cCodec()]
        if self._compress and _pays(first):
            self._compressed = True
            compressors.insert(0, ZstdCodec(level=1, checksum=True))
        return self._group.create_array(
            self._name,
            shape=(0, *self._row),
            chunks=(layout.chunk_rows, *self._row),
            shards=(layout.chunk_rows * layout.chunks_per_shard, *self._row),
            dtype=self._dtype,
            filters=None,
            compressors=compressors,
            fill_value=0,
            # Otherwise a chunk of zeros could not be told from a missing one.
            config={"write_empty_chunks": True},
        )


def _pays(rows: npt.NDArray[Any]) -> bool:
    sample = np.ascontiguousarray(rows).view(np.uint8).reshape(-1)
    return bool(sample.size) and len(pack_frame(sample, 1)) < _WORTH_COMPRESSING * sample.size


class StoredArray:
    """A stored array, read by rows. Safe to use from several threads.

    Zarr takes a millisecond for a read, whatever its size, and a chunk holds the rows of thousands of small tensors.
    So the chunks that were read last stay decoded, and what fits into a chunk is cut out of them::

        rows 0..8       chunk 0: read through Zarr, keep, cut 0..8
        rows 8..16      chunk 0: cut 8..16
        rows 16..5M     more than a chunk: read through Zarr

    Attributes:
        layout: its length, chunks and shards.
    """

    def __init__(self, array: zarr.Array[Any], layout: ArrayLayout) -> None:
        """Read ``array``, whose metadata is that of ``layout``."""
        self.layout = layout
        self._array = array
        self._chunk_rows = layout.chunk_rows
        self._chunks: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows ``[start, stop)``, an array of its own.

        Raises:
            CorruptError: they lie outside the array, or do not decode.
        """
        if not 0 <= start <= stop <= self.layout.length:
            raise CorruptError(
                f"{GROUP}/{self.layout.name}", f"[{start}, {stop}) is outside its {self.layout.length} rows"
            )
        size = self._chunk_rows
        if stop - start > size or start == stop:
            return self._read(start, stop)
        first, last = start // size, (stop - 1) // size
        pieces = [self._chunk(n)[max(0, start - n * size) : stop - n * size] for n in range(first, last + 1)]
        return np.concatenate(pieces)

    def _chunk(self, number: int) -> npt.NDArray[Any]:
        with self._lock:
            chunk = self._chunks.get(number)
            if chunk is not None:
                self._chunks.move_to_end(number)
                return chunk
        # Without the lock: two threads may decode the same chunk, but none waits for a chunk that it does not need.
        start = number * self._chunk_rows
        chunk = self._read(start, min(start + self._chunk_rows, self.layout.length))
        with self._lock:
            self._chunks[number] = chunk
            while len(self._chunks) > CACHED_CHUNKS:
                self._chunks.popitem(last=False)
        return chunk

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        try:
            return np.asarray(self._array[start:stop])
        except (RuntimeError, ValueError) as error:
            if isinstance(error, (CorruptError, FormatError)):
                raise
            raise CorruptError(f"{GROUP}/{self.layout.name}", f"does not decode ({error})") from error


def check_shard(layout: ArrayLayout, key: str, data: bytes) -> None:
    """Refuse a shard with a chunk that is absent, lies outside the shard, or would expand to another size.

    Args:
        layout: of its array.
        key: the shard's key, ``.../c/NUMBER...``.
        data: the shard.

    Raises:
        CorruptError: the shard has such a chunk.
    """
    chunks = layout.chunks_per_shard
    index_bytes = 16 * chunks
    if len(data) < index_bytes + 4:
        raise CorruptError(key, f"{len(data)} bytes, too short for a shard of {chunks} chunks")
    index = np.frombuffer(data, "<u8", 2 * chunks, len(data) - index_bytes - 4)
    first = int(key.partition("/c/")[2].split("/")[0]) * chunks
    for number, (offset, size) in enumerate(index.reshape(-1, 2).tolist(), start=first):
        if offset == size == _NO_CHUNK:
            if number < layout.chunks:
                raise CorruptError(key, "a chunk is absent, and would read as zeros")
            continue
        if offset + size > len(data):
            raise CorruptError(key, "a chunk lies outside its shard")
        if layout.compressed and content_bytes(memoryview(data)[offset : offset + size]) != layout.chunk_bytes:
            raise CorruptError(key, f"a chunk does not announce {layout.chunk_bytes} bytes")


_NO_CHUNK = (1 << 64) - 1
