"""Shards: the objects that an array consists of, in the bytes that Zarr writes and reads.

A shard has its chunks one after another, and then says where each lies::

    chunk 0, crc32c | chunk 1, crc32c | ... | index: (offset, size) of each chunk, uint64 | crc32c of the index

A chunk is as many rows as :class:`~maskreg.artifact.layout.ArrayLayout` says, the last one of an array padded with
zeros, or a Zstandard frame, whose announced size is checked before it expands. Sizes include the checksum.

An absent chunk has offset and size 2^64 - 1, and Zarr reads it as zeros. So every chunk is written, and
:func:`check_shard` refuses a shard in which one is absent.

Zarr itself reads and writes such arrays at a tenth of the speed: it hands every range of every chunk to an event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import ArrayLayout
from maskreg.errors import CorruptError

Bytes = npt.NDArray[np.uint8]

_MAGIC = b"\x28\xb5\x2f\xfd"


def pack_frame(data: npt.NDArray[np.uint8], level: int, *, checksum: bool = False) -> bytes:
    """One frame that holds ``data`` and announces its size."""
    # Late: it loads all codecs that there are, which takes longer than reading a small artifact.
    from numcodecs.zstd import compress

    frame: bytes = compress(data, level, checksum)
    return frame


def unpack_frame(frame: bytes | memoryview, into: npt.NDArray[np.uint8]) -> None:
    """Fill ``into`` with what a frame holds."""
    from numcodecs.zstd import decompress

    try:
        decompress(frame, into)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def content_bytes(frame: bytes | memoryview) -> int | None:
    """Size that a frame's header announces (RFC 8878, section 3.1.1.1); None if it announces none or is not a frame."""
    head = bytes(frame[:18])
    if len(head) < 6 or head[:4] != _MAGIC:
        return None
    descriptor = head[4]
    single_segment, flag = descriptor >> 5 & 1, descriptor >> 6
    width = (1 if single_segment else 0, 2, 4, 8)[flag]
    offset = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(head) < offset + width:
        return None
    return int.from_bytes(head[offset : offset + width], "little") + (256 if width == 2 else 0)


_ENTRY = struct.Struct("<QQ")
_SUM = struct.Struct("<I")
_NO_CHUNK = (1 << 64) - 1


def pack_shard(layout: ArrayLayout, chunks: Iterable[Bytes]) -> Iterator[memoryview | bytes]:
    """A shard's bytes, in pieces, of the rows in its chunks, uint8; the last one can be smaller."""
    index: list[int] = []
    offset = 0
    for chunk in chunks:
        if chunk.size < layout.chunk_bytes:
            chunk = np.concatenate([chunk, np.zeros(layout.chunk_bytes - chunk.size, np.uint8)])
        stored = memoryview(pack_frame(chunk, 1, checksum=True) if layout.compressed else chunk.data)
        yield stored
        yield _sum(stored)
        index += [offset, len(stored) + _SUM.size]
        offset += index[-1]
    index += [_NO_CHUNK] * (2 * layout.chunks_per_shard - len(index))
    packed = np.array(index, "<u8").tobytes()
    yield packed
    yield _sum(memoryview(packed))


def check_shard(layout: ArrayLayout, key: str, data: memoryview | bytes) -> None:
    """Refuse a shard whose checksums do not fit, or with a chunk that is absent, outside the shard or of another size.

    ``key``: the shard's key, ``.../c/NUMBER...``.
    """
    data = memoryview(data)
    chunks = layout.chunks_per_shard
    end = len(data) - _SUM.size
    if end < _ENTRY.size * chunks:
        raise CorruptError(key, f"{len(data)} bytes, too short for a shard of {chunks} chunks")
    if _sum(data[end - _ENTRY.size * chunks : end]) != data[end:]:
        raise CorruptError(key, "the checksum of its index does not fit")
    first = int(key.partition("/c/")[2].split("/")[0]) * chunks
    for number, (offset, size) in enumerate(_entries(layout, data)):
        if offset == size == _NO_CHUNK:
            if first + number < layout.chunks:
                raise CorruptError(key, "a chunk is absent, and would read as zeros")
            continue
        if offset + size > len(data):
            raise CorruptError(key, "a chunk lies outside its shard")
        stored, checksum = data[offset : offset + size - _SUM.size], data[offset + size - _SUM.size : offset + size]
        expands = content_bytes(stored) if layout.compressed else len(stored)
        if expands != layout.chunk_bytes:
            raise CorruptError(key, f"a chunk does not announce {layout.chunk_bytes} bytes")
        if _sum(stored) != checksum:
            raise CorruptError(key, "the checksum of a chunk does not fit")


def stored_chunk(layout: ArrayLayout, data: memoryview, number: int) -> memoryview:
    """A chunk as a checked shard stores it, without its checksum."""
    start = len(data) - _SUM.size - _ENTRY.size * (layout.chunks_per_shard - number)
    offset, size = _ENTRY.unpack_from(data, start)
    return data[offset : offset + size - _SUM.size]


def read_chunk(layout: ArrayLayout, key: str, file: BinaryIO, size: int, number: int) -> memoryview:
    """The same from the file of a shard that was only hashed: the chunk is checked as :func:`check_shard` would."""
    file.seek(size - _SUM.size - _ENTRY.size * (layout.chunks_per_shard - number))
    entry = file.read(_ENTRY.size)
    offset, length = _ENTRY.unpack(entry) if len(entry) == _ENTRY.size else (0, 0)
    if _SUM.size <= length <= size - offset:
        file.seek(offset)
        data = memoryview(file.read(length))
        stored = data[: -_SUM.size]
        expands = content_bytes(stored) if layout.compressed else len(stored)
        if _sum(stored) == data[-_SUM.size :] and expands == layout.chunk_bytes:
            return stored
    raise CorruptError(key, "a chunk is absent, of another size, or does not fit its checksum")


def _entries(layout: ArrayLayout, data: memoryview) -> Iterator[tuple[int, int]]:
    end = len(data) - _SUM.size
    return _ENTRY.iter_unpack(data[end - _ENTRY.size * layout.chunks_per_shard : end])


def _sum(data: memoryview) -> bytes:
    # As an array, because the library takes no view.
    return _SUM.pack(google_crc32c.value(np.frombuffer(data, np.uint8)))
