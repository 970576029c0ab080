"""Flat Zarr arrays that grow while they are written, and the checks before one is read.

An array consists of shards of 16 MiB, one object each, and a shard of 16 chunks of 1 MiB followed by an index::

    chunk 0 | chunk 1 | ... | index: (offset, size) of each chunk, uint64 | crc32c of the index

An absent chunk has offset and size 2^64 - 1, and Zarr reads it as zeros. So every chunk is written, and ``check_shard``
refuses a shard in which one is absent. It also refuses a chunk that lies outside the shard, or whose Zstandard header
announces another size than a chunk has, before anything is decompressed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from maskreg.artifact.zstd import content_bytes, pack_frame
from maskreg.document import parse_object
from maskreg.errors import CorruptError, FormatError
from maskreg.limits import LIMITS, Limits

CHUNK_BYTES = 1 << 20
SHARD_BYTES = 16 << 20
# Measured: larger shards cost memory and speed; smaller ones cost more objects.

_WORTH_COMPRESSING = 0.9
_CODECS = {"bytes", "crc32c", "zstd"}


class GrowingArray:
    """Collects rows of one array and writes them shard by shard, in the memory of one shard.

    Rows have a fixed shape (``()`` for a 1-D array); the array grows along the first axis. An array smaller
    than one shard gets chunks that fit it, so that a small artifact is not padded to 1 MiB per array.
    """

    def __init__(
        self, group: zarr.Group, name: str, dtype: str, row: tuple[int, ...] = (), *, compress: bool = False
    ) -> None:
        self._group = group
        self._name = name
        self._dtype = np.dtype(dtype)
        self._row = row
        self._compress = compress
        self._array: zarr.Array[Any] | None = None
        self._pending: list[npt.NDArray[Any]] = []
        self._pending_rows = 0
        self._row_bytes = self._dtype.itemsize * math.prod(row)
        self._shard_rows = SHARD_BYTES // self._row_bytes
        self.length = 0
        """Rows appended so far."""

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
        full = len(first) == self._shard_rows
        chunks = SHARD_BYTES // CHUNK_BYTES if full else max(1, -(-first.nbytes // CHUNK_BYTES))
        chunk_rows = max(1, -(-len(first) // chunks))
        compressors: list[Any] = [Crc32cCodec()]
        if self._compress and _pays(first):
            compressors.insert(0, ZstdCodec(level=1, checksum=True))
        return self._group.create_array(
            self._name,
            shape=(0, *self._row),
            chunks=(chunk_rows, *self._row),
            shards=(chunk_rows * chunks, *self._row),
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


class ArrayCheck:
    """The metadata of one stored array, checked before anything is decoded.

    Attributes:
        shape: the array's shape.
        compressed: whether its chunks are Zstandard frames.
    """

    def __init__(self, data: bytes, name: str, dtype: str, row: tuple[int, ...], limits: Limits = LIMITS) -> None:
        """Parse a ``zarr.json``.

        Raises:
            FormatError: not an array of this dtype and row shape, or a codec that is not on the allow-list.
        """
        self._key = f"data.zarr/{name}/zarr.json"
        meta = parse_object(data, self._key, max_bytes=limits.zarr_json_bytes, max_depth=limits.json_depth)
        try:
            self._parse(meta, dtype, row, limits)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{self._key}: not the metadata of a Zarr v3 array ({error!r})") from error

    def _parse(self, meta: dict[str, Any], dtype: str, row: tuple[int, ...], limits: Limits) -> None:
        self._require(meta["zarr_format"] == 3 and meta["node_type"] == "array", "a Zarr v3 array")
        self._require(meta["data_type"] == dtype, f"of {dtype}")
        self._require(meta["fill_value"] == 0 and not meta.get("storage_transformers"), "plain")
        self._require(meta["chunk_key_encoding"] == _KEYS, "with default chunk keys")
        self._require(meta["chunk_grid"]["name"] == "regular", "on a regular grid")
        self.shape = tuple(meta["shape"])
        shard = tuple(meta["chunk_grid"]["configuration"]["chunk_shape"])
        (sharding,) = meta["codecs"]
        self._require(sharding["name"] == "sharding_indexed", "sharded")
        inner = sharding["configuration"]
        chunk = tuple(inner["chunk_shape"])
        names = self._names(inner["codecs"])
        index = self._names(inner["index_codecs"])
        self._require(inner.get("index_location", "end") == "end", "with its index at the end")
        self._require(names in (["bytes", "crc32c"], ["bytes", "zstd", "crc32c"]), "with allowed codecs")
        self._require(index == ["bytes", "crc32c"], "with a plain index")
        whole = (self.shape, shard, chunk)
        self._require(all(isinstance(n, int) and n >= 0 for s in whole for n in s), "of integer sizes")
        self._require(all(s[1:] == row and len(s) == 1 + len(row) for s in whole), f"of rows {row}")
        self._require(chunk[0] > 0 and shard[0] > 0 and shard[0] % chunk[0] == 0, "with shards of whole chunks")
        self.compressed = "zstd" in names
        self.chunk_bytes = math.prod(chunk) * np.dtype(dtype).itemsize
        self.chunks_per_shard = shard[0] // chunk[0]
        shard_bytes = self.chunk_bytes * self.chunks_per_shard
        self._require(shard_bytes <= limits.object_bytes, f"with shards of at most {limits.object_bytes} bytes")
        self.shards = -(-self.shape[0] // shard[0])
        self._chunks = -(-self.shape[0] // chunk[0])

    def _names(self, codecs: Iterable[dict[str, Any]]) -> list[str]:
        names = [c["name"] for c in codecs]
        self._require(set(names) <= _CODECS, f"with codecs of {sorted(_CODECS)}")
        return names

    def _require(self, holds: bool, expected: str) -> None:
        if not holds:
            raise FormatError(f"{self._key}: not an array {expected}")

    def check_shard(self, key: str, data: bytes) -> None:
        """Refuse a shard with a chunk that is absent, lies outside the shard, or would expand to another size.

        Args:
            key: the shard's key, ``.../c/NUMBER...``.
            data: the shard.

        Raises:
            CorruptError: the shard has such a chunk.
        """
        index_bytes = 16 * self.chunks_per_shard
        if len(data) < index_bytes + 4:
            raise CorruptError(key, f"{len(data)} bytes, too short for a shard of {self.chunks_per_shard} chunks")
        index = np.frombuffer(data, "<u8", 2 * self.chunks_per_shard, len(data) - index_bytes - 4)
        first = int(key.partition("/c/")[2].split("/")[0]) * self.chunks_per_shard
        for number, (offset, size) in enumerate(index.reshape(-1, 2).tolist(), start=first):
            if offset == size == _NO_CHUNK:
                if number < self._chunks:
                    raise CorruptError(key, "a chunk is absent, and would read as zeros")
                continue
            if offset + size > len(data):
                raise CorruptError(key, "a chunk lies outside its shard")
            if self.compressed and content_bytes(memoryview(data)[offset : offset + size]) != self.chunk_bytes:
                raise CorruptError(key, f"a chunk does not announce {self.chunk_bytes} bytes")


_KEYS = {"name": "default", "configuration": {"separator": "/"}}
_NO_CHUNK = (1 << 64) - 1
