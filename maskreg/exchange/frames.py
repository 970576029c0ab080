"""Changed tensors as zstd frames, each decoded as a whole and held against its checksum."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

from maskreg.artifact.zstd import content_bytes, unpack_frame
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import CorruptError, FormatError
from maskreg.exchange.patched import OTHER_VALUES
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

POSITION = np.dtype("<u4")
"""Count and byte positions of the encoding ``overwrite``."""


class Checksum(Protocol):
    """A running checksum."""

    def update(self, data: Any) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The checksum of what was added, in hex digits."""


class _Adler32:
    def __init__(self) -> None:
        self._value = 1

    def update(self, data: Any) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


CHECKSUMS: Mapping[str, Callable[[], Checksum]] = {"xxh3-128": xxhash.xxh3_128, "adler32": _Adler32}
"""What ``checksum_format`` may be."""


def as_bytes(values: npt.NDArray[Any]) -> Bytes:
    """The bytes of values of any width."""
    return np.ascontiguousarray(values).view(np.uint8)


class Frames:
    """Decoded tensors of a version; those of the last two stay in memory, since their spans are read one by one."""

    def __init__(self, source: Checkpoint, encoding: str, checksum: Callable[[], Checksum]) -> None:
        self.source = source
        self._decode = self._xored if encoding == "xor" else self._overwritten
        self._checksum = checksum
        self._decoded: OrderedDict[str, Bytes] = OrderedDict()
        self._lock = threading.Lock()

    def patch(self, file: Checkpoint, info: TensorInfo, checksum: str) -> FramePatch:
        """What becomes of one tensor.

        Raises:
            FormatError: the file does not hold a frame and a checksum for it.
        """
        stored = file.tensors[info.name]
        if stored.dtype != "U8" or len(stored.shape) != 1:
            raise FormatError(f"tensor {info.name}: {stored.dtype} {list(stored.shape)}, not a frame of bytes")
        if not checksum:
            raise FormatError(f"tensor {info.name}: the file has no checksum of it")
        return FramePatch(self, file, info, checksum)

    def result(self, patch: FramePatch) -> Bytes:
        """Bytes of the target's tensor, checked."""
        # One at a time: others wait for the very tensor, or for memory.
        with self._lock:
            name = patch.info.name
            if name not in self._decoded:
                while len(self._decoded) > 1:
                    self._decoded.popitem(last=False)
                self._decoded[name] = self._decode(patch)
                self._compare(patch, self._decoded[name])
            return self._decoded[name]

    def _compare(self, patch: FramePatch, result: Bytes) -> None:
        hasher = self._checksum()
        hasher.update(result.data)
        if hasher.hexdigest() != patch.checksum:
            del self._decoded[patch.info.name]
            raise CorruptError(
                f"tensor {patch.info.name}",
                "does not match its checksum",
                hint=OTHER_VALUES,
            )

    def _xored(self, patch: FramePatch) -> Bytes:
        result = patch.unpacked(patch.info.nbytes, patch.info.nbytes)
        result ^= self._source_bytes(patch.info)
        return result

    def _overwritten(self, patch: FramePatch) -> Bytes:
        item, info = POSITION.itemsize, patch.info
        delta = patch.unpacked(item, item + (item + 1) * info.nbytes)
        count = int(delta[:item].view(POSITION)[0])
        if delta.size != item + (item + 1) * count:
            raise patch.fault(f"{delta.size:,} bytes are not {count:,} positions and bytes")
        positions = delta[item : item * (1 + count)].view(POSITION)
        if count and int(positions[-1]) >= info.nbytes:
            raise patch.fault(f"position {int(positions[-1])} is not within its {info.nbytes:,} bytes")
        if (positions[1:] <= positions[:-1]).any():
            raise patch.fault("positions are not in ascending order")
        result = self._source_bytes(info).copy()
        result[positions] = delta[item * (1 + count) :]
        return result

    def _source_bytes(self, info: TensorInfo) -> Bytes:
        return as_bytes(self.source.read(info.name, 0, info.numel))


class FramePatch:
    """A frame of a tensor; a :class:`maskreg.exchange.patched.Patch`."""

    def __init__(self, frames: Frames, file: Checkpoint, info: TensorInfo, checksum: str) -> None:
        self._frames = frames
        self._file = file
        self.info = info
        self.checksum = checksum

    def apply(self, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Write the target's elements; see :class:`maskreg.exchange.patched.Patch`."""
        width = self.info.item_bytes
        values[:] = self._frames.result(self)[start * width : stop * width].view(values.dtype)

    def unpacked(self, least: int, most: int) -> Bytes:
        """What the frame holds, if it announces a size within these bounds.

        Raises:
            FormatError: another size, or none.
            CorruptError: it does not decode.
        """
        stored = self._file.tensors[self.info.name].numel
        frame = self._file.read(self.info.name, 0, stored).data
        size = content_bytes(frame)
        if size is None or not least <= size <= most:
            announced = "no size" if size is None else f"{size:,} bytes"
            expected = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            raise self.fault(f"its frame announces {announced}, not {expected}")
        data = np.empty(size, np.uint8)
        try:
            unpack_frame(frame, data)
        except ValueError as error:
            raise CorruptError(f"tensor {self.info.name}", f"its frame does not decode ({error})") from error
        return data

    def fault(self, fault: str) -> FormatError:
        """An error about this tensor."""
        return FormatError(f"tensor {self.info.name}: {fault}")
