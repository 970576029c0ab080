"""The delta directory of slime, which SGLang's ``/pull_weights`` applies and ModelExpress keeps on object storage.

A version is a directory like a sharded checkpoint's. Its index says which file has which changed tensor, and in
its metadata, all texts, how: ``version``, ``base_version``, ``delta_encoding``, ``compression_format`` and
``checksum_format``. A changed tensor is U8, one-dimensional: one zstd frame, of

* ``xor``: the target's bytes XOR the source's, as many as the tensor has;
* ``overwrite``: a count and so many byte positions, u32 little-endian, then the target's bytes there.

The metadata of each safetensors file has the checksum of each tensor's bytes in the target, by its name.

Readers decompress a tensor's frame as one, so a tensor is in memory as a whole: while it is written, and read.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.artifact.shards import content_bytes, pack_frame, unpack_frame
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import read_whole
from maskreg.checkpoint.layouts import INDEX_NAME, parse_index
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint, build_header
from maskreg.errors import CorruptError, FormatError, UsageError
from maskreg.exchange.base import KEY, Format, Values, Written, parse_lineage
from maskreg.exchange.incoming import OTHER_VALUES, Patch, parse_document, require_folder, target_of, tensor_of
from maskreg.exchange.outgoing import ChangedSpan, Outgoing
from maskreg.exchange.output import json_file, new_folder, sync_file, values_written
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo, batches, shown

Bytes = npt.NDArray[np.uint8]

ENCODINGS = ("xor", "overwrite")
"""What ``delta_encoding`` can be."""

_FILE_BYTES = 5 * 10**9
"""Bytes of the tensors that one file is about; only a single larger tensor exceeds it."""

_ZSTD_LEVEL = 1
_POSITIONS = 1 << 32


class _Encoded(NamedTuple):
    """A span of a changed tensor.

    Attributes:
        after: the target's bytes.
        delta: of ``xor`` as many bytes; of ``overwrite`` the target's bytes at the positions.
        positions: of ``overwrite`` the changed bytes, of the whole tensor.
    """

    after: Bytes
    delta: Bytes
    positions: npt.NDArray[np.uint32] | None = None


POSITION = np.dtype("<u4")
"""Count and byte positions of the encoding ``overwrite``."""


class _Adler32:
    def __init__(self) -> None:
        self._value = 1

    def update(self, data: Any) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


CHECKSUMS: Mapping[str, Callable[[], Any]] = {"xxh3-128": xxhash.xxh3_128, "adler32": _Adler32}
"""What ``checksum_format`` can be."""


def as_bytes(values: npt.NDArray[Any]) -> Bytes:
    """The bytes of values of any width."""
    return np.ascontiguousarray(values).view(np.uint8)


def write(
    update: Outgoing,
    out: Path,
    *,
    force: bool,
    encoding: str = "xor",
    checksum: str = "xxh3-128",
    version: int = 1,
    base_version: int = 0,
) -> Written:
    """Write a version directory; see :class:`maskreg.exchange.base.Format`."""
    _check_options(encoding, checksum, version, base_version)
    if encoding == "overwrite":
        _refuse_large(update.changed.values())
    groups = list(batches(update.changed.values(), _FILE_BYTES, attrgetter("nbytes")))
    names = [f"model-{n:05d}-of-{len(groups):05d}.safetensors" for n in range(len(groups))]
    index = {
        "metadata": {
            "version": f"{version:06d}",
            "base_version": f"{base_version:06d}",
            "delta_encoding": encoding,
            "compression_format": "zstd",
            "checksum_format": checksum,
            KEY: update.lineage(),
        },
        "weight_map": {info.name: name for name, group in zip(names, groups, strict=True) for info in group},
    }
    files = {**update.files, INDEX_NAME: json_file(index)}
    needed = sum(map(len, files.values())) + sum(info.nbytes for info in update.changed.values())
    encoder = _Encoder(update, encoding, checksum)
    with new_folder(
        update, out, weights=INDEX_NAME, names={*names, *files}, needed_bytes=needed, force=force
    ) as pending:
        size = sum(encoder.write(pending.work / name, group) for name, group in zip(names, groups, strict=True))
        for name, data in files.items():
            with (pending.work / name).open("xb") as file:
                file.write(data)
                sync_file(file)
    size += sum(map(len, files.values()))
    return values_written(update, pending.path, size, pending.kept, holds_files=True)


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values:
    """Open a version directory; see :class:`maskreg.exchange.base.Reader`."""
    require_folder(path, FORMAT.accepts)
    data = read_whole(path / INDEX_NAME, limits.index_json_bytes)
    document = parse_document(data, path / INDEX_NAME, limits)
    metadata = _checked_metadata(document.get("metadata"), path / INDEX_NAME)
    patches: dict[str, Patch] = {}
    frames = _Frames(source, metadata["delta_encoding"], CHECKSUMS[metadata["checksum_format"]])
    if document.get("weight_map") != {}:
        weight_map = parse_index(data, INDEX_NAME, (".safetensors",), limits)
        files = [path / name for name in sorted(set(weight_map.values()))]
        file = SafetensorsCheckpoint(path, files, index=data, weight_map=weight_map, limits=limits)
        closing(file)
        for shard in file.shards:
            for info in shard.tensors:
                expected = shard.metadata.get(info.name, "")
                patches[info.name] = frames.patch(file, tensor_of(source, info.name), expected)
    lineage = parse_lineage(metadata.get(KEY), str(path / INDEX_NAME), limits)
    return Values(target_of(source, patches, path, lineage, (), limits), lineage)


def _check_options(encoding: str, checksum: str, version: int, base_version: int) -> None:
    if encoding not in ENCODINGS:
        raise UsageError(f"unknown encoding {encoding!r}", hint=f"choose {' or '.join(ENCODINGS)}")
    if checksum not in CHECKSUMS:
        raise UsageError(f"unknown checksum {checksum!r}", hint=f"choose {' or '.join(CHECKSUMS)}")
    if not 0 <= base_version < version:
        raise UsageError(
            f"version {version} cannot follow version {base_version}", hint="a version is larger than its base"
        )


def _refuse_large(infos: Iterable[TensorInfo]) -> None:
    for info in infos:
        if info.nbytes > _POSITIONS:
            raise UsageError(
                f"tensor {info.name}: {info.nbytes:,} bytes, and overwrite has 32 bits for a position",
                hint="set encoding=xor",
            )


class _Encoder:
    """Writes the files of a version, each as its frames become known.

    A safetensors file begins with a header that states sizes which only compressing tells. So room is left for the
    longest header that there can be, which is then written in front and padded with spaces, as the format allows.
    """

    def __init__(self, update: Outgoing, encoding: str, checksum: str) -> None:
        self._update = update
        self._encode = _xor if encoding == "xor" else _overwrite
        self._checksum = CHECKSUMS[checksum]

    def write(self, path: Path, infos: Sequence[TensorInfo]) -> int:
        """Write one file with these tensors, and return its size."""
        longest = [TensorInfo(info.name, "U8", (_most(info),)) for info in infos]
        room = len(build_header(longest, {info.name: "0" * 32 for info in infos}))
        frames: list[TensorInfo] = []
        checksums: dict[str, str] = {}
        with path.open("xb") as file:
            file.seek(room)
            encoded = self._update.map(self._encode, [info.name for info in infos])
            for name, spans in groupby(encoded, key=lambda result: result[0].name):
                size, checksums[name] = self._write_tensor(file, (span for _, span in spans))
                frames.append(TensorInfo(name, "U8", (size,)))
            header = build_header(frames, checksums)
            file.seek(0)
            file.write((room - 8).to_bytes(8, "little") + header[8:].ljust(room - 8))
            sync_file(file)
        return room + sum(info.nbytes for info in frames)

    def _write_tensor(self, file: BinaryIO, spans: Iterable[_Encoded]) -> tuple[int, str]:
        hasher, parts, positions = self._checksum(), [], []
        for encoded in spans:
            hasher.update(encoded.after.data)
            parts.append(encoded.delta)
            if encoded.positions is not None:
                positions.append(encoded.positions)
        if positions:
            count = np.array([sum(map(len, positions))], POSITION)
            parts = [count.view(np.uint8), *(part.view(np.uint8) for part in positions), *parts]
        frame = pack_frame(np.concatenate(parts), _ZSTD_LEVEL)
        file.write(frame)
        return len(frame), hasher.hexdigest()


def _most(info: TensorInfo) -> int:
    # Larger than any frame: zstd adds a 128th at most to what it cannot compress.
    return (4 + (1 + POSITION.itemsize) * info.nbytes) * 2 + 1024


def _xor(span: ChangedSpan) -> _Encoded:
    before, after = as_bytes(span.before), as_bytes(span.after)
    return _Encoded(after.copy(), before ^ after)


def _overwrite(span: ChangedSpan) -> _Encoded:
    before, after = as_bytes(span.before), as_bytes(span.after)
    local = np.flatnonzero(before != after)
    positions = (local + span.start * span.info.item_bytes).astype(POSITION)
    return _Encoded(after.copy(), after[local], positions)


def _checked_metadata(metadata: Any, document: Path) -> dict[str, Any]:
    if not isinstance(metadata, dict) or "delta_encoding" not in metadata:
        raise FormatError(
            f"{document}: its metadata has no delta_encoding: not a delta directory",
            hint="a full checkpoint is a target to extract from",
        )
    known: dict[str, Sequence[str]] = {
        "delta_encoding": ENCODINGS,
        "compression_format": ("zstd",),
        "checksum_format": tuple(CHECKSUMS),
    }
    for key, words in known.items():
        if metadata.get(key) not in words:
            raise FormatError(f"{document}: {key} is {shown(metadata.get(key))}; known: {', '.join(words)}")
    for key in ("version", "base_version"):
        text = metadata.get(key)
        if not isinstance(text, str) or not text.isascii() or not text.isdigit():
            raise FormatError(f"{document}: {key} is {shown(text)}, not a number as text")
    return metadata


class _Frames:
    """Decoded tensors of a version; the last two stay in memory, since their spans are read one by one."""

    def __init__(self, source: Checkpoint, encoding: str, checksum: Callable[[], Any]) -> None:
        self._source = source
        self._decode = self._xored if encoding == "xor" else self._overwritten
        self._checksum = checksum
        self._decoded: OrderedDict[str, Bytes] = OrderedDict()
        self._lock = threading.Lock()

    def patch(self, file: Checkpoint, info: TensorInfo, checksum: str) -> Patch:
        """What becomes of one tensor, whose bytes in the target have this checksum."""
        stored = file.tensors[info.name]
        if stored.dtype != "U8" or len(stored.shape) != 1:
            raise FormatError(f"tensor {info.name}: {stored.dtype} {list(stored.shape)}, not a frame of bytes")
        if not checksum:
            raise FormatError(f"tensor {info.name}: the file has no checksum of it")

        def apply(start: int, stop: int, values: npt.NDArray[Any]) -> None:
            width = info.item_bytes
            values[:] = self._result(file, info, checksum)[start * width : stop * width].view(values.dtype)

        return apply

    def _result(self, file: Checkpoint, info: TensorInfo, checksum: str) -> Bytes:
        """Bytes of the target's tensor, checked."""
        # One at a time: others wait for the very tensor, or for memory.
        with self._lock:
            if info.name not in self._decoded:
                while len(self._decoded) > 1:
                    self._decoded.popitem(last=False)
                result, hasher = self._decode(file, info), self._checksum()
                hasher.update(result.data)
                if hasher.hexdigest() != checksum:
                    raise CorruptError(f"tensor {info.name}", "does not match its checksum", hint=OTHER_VALUES)
                self._decoded[info.name] = result
            return self._decoded[info.name]

    def _xored(self, file: Checkpoint, info: TensorInfo) -> Bytes:
        result = _unpacked(file, info, info.nbytes, info.nbytes)
        result ^= self._source_bytes(info)
        return result

    def _overwritten(self, file: Checkpoint, info: TensorInfo) -> Bytes:
        item = POSITION.itemsize
        delta = _unpacked(file, info, item, item + (item + 1) * info.nbytes)
        count = int(delta[:item].view(POSITION)[0])
        if delta.size != item + (item + 1) * count:
            raise FormatError(f"tensor {info.name}: {delta.size:,} bytes are not {count:,} positions and bytes")
        positions = delta[item : item * (1 + count)].view(POSITION)
        if count and int(positions[-1]) >= info.nbytes:
            fault = f"position {int(positions[-1])} is not within its {info.nbytes:,} bytes"
            raise FormatError(f"tensor {info.name}: {fault}")
        if (positions[1:] <= positions[:-1]).any():
            raise FormatError(f"tensor {info.name}: positions are not in ascending order")
        result = self._source_bytes(info).copy()
        result[positions] = delta[item * (1 + count) :]
        return result

    def _source_bytes(self, info: TensorInfo) -> Bytes:
        return as_bytes(self._source.read(info.name, 0, info.numel))


def _unpacked(file: Checkpoint, info: TensorInfo, least: int, most: int) -> Bytes:
    """What the frame of a tensor holds, if it announces a size within these bounds."""
    frame = file.read(info.name, 0, file.tensors[info.name].numel).data
    size = content_bytes(frame)
    if size is None or not least <= size <= most:
        announced = "no size" if size is None else f"{size:,} bytes"
        expected = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        raise FormatError(f"tensor {info.name}: its frame announces {announced}, not {expected}")
    data = np.empty(size, np.uint8)
    try:
        unpack_frame(frame, data)
    except ValueError as error:
        raise CorruptError(f"tensor {info.name}", f"its frame does not decode ({error})") from error
    return data


FORMAT = Format(
    name="slime",
    holds="values",
    accepts=f"a directory with {INDEX_NAME} that names a delta_encoding",
    write=write,
    read=read,
    options={"encoding": "xor", "checksum": "xxh3-128", "version": 1, "base_version": 0},
)
