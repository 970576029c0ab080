"""Whole tensors as zstd frames in safetensors files, which slime and SkyRL share: written, and read checked.

A changed tensor is U8, one-dimensional: one zstd frame. A frame is decompressed as one, so a tensor is in memory as a
whole: while it is written, and read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.artifact.shards import content_bytes, pack_frame, unpack_frame
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.safetensors import build_header
from maskreg.errors import CorruptError, FormatError
from maskreg.exchange.base import OTHER_VALUES
from maskreg.exchange.incoming import Patch
from maskreg.exchange.outgoing import ChangedSpan, Outgoing
from maskreg.exchange.output import sync_file
from maskreg.tensors.info import TensorInfo

Bytes = npt.NDArray[np.uint8]

ZSTD_LEVEL = 1
"""The level of all these tools."""

POSITION = np.dtype("<u4")
"""Count and byte positions of slime's encoding ``overwrite``."""


class Encoded(NamedTuple):
    """A span of a changed tensor.

    Attributes:
        after: the target's bytes.
        delta: as many bytes, or with positions the target's bytes there.
        positions: changed bytes, of the whole tensor.
    """

    after: Bytes
    delta: Bytes
    positions: npt.NDArray[np.uint32] | None = None


class Frame(NamedTuple):
    """What a file has of a tensor: the bytes of its frame, and the checksum of its bytes in the target."""

    size: int
    checksum: str


def as_bytes(values: npt.NDArray[Any]) -> Bytes:
    """The bytes of values of any width."""
    return np.ascontiguousarray(values).view(np.uint8)


def xor(span: ChangedSpan) -> Encoded:
    """The target's bytes XOR the source's."""
    before, after = as_bytes(span.before), as_bytes(span.after)
    return Encoded(after.copy(), before ^ after)


def write_frames(
    path: Path,
    infos: Sequence[TensorInfo],
    update: Outgoing,
    encode: Callable[[ChangedSpan], Encoded],
    checksum: Callable[[], Any],
) -> Mapping[str, Frame]:
    """Write one file with these tensors, its metadata their checksums; what it has of each, by name.

    A safetensors file begins with a header that states sizes which only compressing tells. So room is left for the
    longest header that there can be, which is then written in front and padded with spaces, as the format allows.
    """
    # Longer than any frame: zstd adds a 128th at most to what it cannot compress.
    longest = [TensorInfo(i.name, "U8", (2 * (4 + (1 + POSITION.itemsize) * i.nbytes) + 1024,)) for i in infos]
    room = len(build_header(longest, {info.name: "0" * 32 for info in infos}))
    frames: dict[str, Frame] = {}
    with path.open("xb") as file:
        file.seek(room)
        encoded = update.map(encode, [info.name for info in infos])
        for name, spans in groupby(encoded, key=lambda result: result[0].name):
            frames[name] = _write_tensor(file, (span for _, span in spans), checksum())
        stored = [TensorInfo(name, "U8", (frame.size,)) for name, frame in frames.items()]
        header = build_header(stored, {name: frame.checksum for name, frame in frames.items()})
        file.seek(0)
        file.write((room - 8).to_bytes(8, "little") + header[8:].ljust(room - 8))
        sync_file(file)
    return frames


def _write_tensor(file: BinaryIO, spans: Iterable[Encoded], hasher: Any) -> Frame:
    parts, positions = [], []
    for encoded in spans:
        hasher.update(encoded.after.data)
        parts.append(encoded.delta)
        if encoded.positions is not None:
            positions.append(encoded.positions)
    if positions:
        count = np.array([sum(map(len, positions))], POSITION)
        parts = [count.view(np.uint8), *(part.view(np.uint8) for part in positions), *parts]
    frame = pack_frame(np.concatenate(parts), ZSTD_LEVEL)
    file.write(frame)
    return Frame(len(frame), hasher.hexdigest())


class FramePatches:
    """Tensors of the files of an update; the last two stay in memory, since their spans are read one by one.

    ``decode``: the target's bytes of a tensor, given the files, the tensor, and the source's bytes, which stay.
    """

    def __init__(
        self, source: Checkpoint, files: Checkpoint, decode: Callable[[Checkpoint, TensorInfo, Bytes], Bytes]
    ) -> None:
        """Read from files that stay open."""
        self._source, self._files, self._decode = source, files, decode
        # One at a time: others wait for the very tensor, or for memory.
        self._lock, self._recent = threading.Lock(), lru_cache(2)(self._target)

    def patch(self, info: TensorInfo, checksum: str, hasher: Callable[[], Any]) -> Patch:
        """What becomes of one tensor, whose bytes in the target have this checksum."""
        stored = self._files.tensors[info.name]
        if stored.dtype != "U8" or len(stored.shape) != 1:
            raise FormatError(f"tensor {info.name}: {stored.dtype} {list(stored.shape)}, not a frame of bytes")
        if not checksum:
            raise FormatError(f"tensor {info.name}: the file has no checksum of it")

        def apply(start: int, stop: int, values: npt.NDArray[Any]) -> None:
            width = info.item_bytes
            with self._lock:
                target = self._recent(info, checksum, hasher)
            values[:] = target[start * width : stop * width].view(values.dtype)

        return apply

    def _target(self, info: TensorInfo, checksum: str, hasher: Callable[[], Any]) -> Bytes:
        result = self._decode(self._files, info, as_bytes(self._source.read(info.name, 0, info.numel)))
        hashed = hasher()
        hashed.update(result.data)
        if hashed.hexdigest() != checksum:
            raise CorruptError(f"tensor {info.name}", "does not match its checksum", hint=OTHER_VALUES)
        return result


def unxored(files: Checkpoint, info: TensorInfo, before: Bytes) -> Bytes:
    """The target's bytes of a tensor that :func:`xor` encoded."""
    result = unpacked(files, info, info.nbytes, info.nbytes)
    result ^= before
    return result


def unpacked(files: Checkpoint, info: TensorInfo, least: int, most: int) -> Bytes:
    """What the frame of a tensor holds, if it announces a size within these bounds."""
    frame = files.read(info.name, 0, files.tensors[info.name].numel).data
    return unpack(frame, f"tensor {info.name}", least, most)


def unpack(frame: bytes | memoryview, key: str, least: int, most: int) -> Bytes:
    """What a frame holds, if it announces a size within these bounds; ``key``: the tensor or file that it is."""
    size = content_bytes(frame)
    if size is None or not least <= size <= most:
        announced = "no size" if size is None else f"{size:,} bytes"
        expected = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        raise FormatError(f"{key}: its frame announces {announced}, not {expected}")
    data = np.empty(size, np.uint8)
    try:
        unpack_frame(frame, data)
    except ValueError as error:
        raise CorruptError(key, f"its frame does not decode ({error})") from error
    return data
