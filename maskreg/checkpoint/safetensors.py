"""Safetensors checkpoints, one file or many with an index, read span by span.

A file is eight length bytes, a JSON object (the header), then the tensors' data without gaps.

::

    80 00 00 00 00 00 00 00                                          length of the JSON, 128, little-endian
    {"__metadata__":{"format":"pt"},                                 optional; strings only
     "w":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},...}   offsets count from the end of the header
    data of the tensors, each where the one before it ends

Every tensor must begin at a multiple of its element's width, because readers view it in place: the header is padded
with spaces to a multiple of eight bytes, and writers put wider elements first where the order given would not do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint.base import Memory
from maskreg.checkpoint.files import OpenFile, StoredCheckpoint, in_folder, names_in, opening, read_whole, reading
from maskreg.checkpoint.layouts import INDEX_NAME, check_index, explaining, parse_index, why_no_weights
from maskreg.document import parse_object
from maskreg.errors import CorruptError, FormatError, LimitError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.tensors.info import ITEM_BYTES, MAX_RANK, TensorInfo, check_name, shown

LENGTH_BYTES = 8
"""The little-endian length in front of the JSON."""

# An object of objects that hold lists; anything deeper is not a header.
_DEPTH = 3
# A tensor takes about eight; the metadata, a text, counts with its commas.
_VALUES = 20
_KEYS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Shard:
    """One weight file: tensors in the order of their data, and the header as stored, with its 8 length bytes."""

    file_name: str
    tensors: tuple[TensorInfo, ...]
    header: bytes
    metadata: Mapping[str, str]

    @property
    def data_bytes(self) -> int:
        """Size of the data behind the header in bytes."""
        return sum(info.nbytes for info in self.tensors)


def build_shard(file_name: str, tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> Shard:
    """A new weight file with these tensors, in this order where it keeps every tensor aligned.

    Sorting by width aligns any set of tensors: widths are powers of two, so all that stands before an element of
    width w is a whole number of elements that are as wide or wider, and its length a multiple of w.
    """
    ordered = tuple(tensors)
    if not _aligned(ordered):
        ordered = tuple(sorted(ordered, key=lambda info: -info.item_bytes))
    return Shard(file_name, ordered, build_header(ordered, metadata), metadata)


def header_length(first: bytes, file_bytes: int, file_name: str) -> int:
    """Length of the JSON, from the first eight bytes of a file."""
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or length > file_bytes - LENGTH_BYTES:
        raise FormatError(
            f"{file_name}: not a safetensors file, or cut short", hint="download or copy the checkpoint again"
        )
    if length > LIMITS.safetensors_header_bytes:
        raise LimitError(f"{file_name}: a header of {length} bytes; the limit is {LIMITS.safetensors_header_bytes}")
    return length


def parse_header(header: bytes, data_bytes: int, file_name: str) -> Shard:
    """Parse and validate a header from outside."""
    if header[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{":
        raise FormatError(
            f"{file_name}: not a safetensors file", hint="name the file or folder that the weights were saved to"
        )
    # Before parsing, which takes seconds for so many: the document, its metadata and each tensor are an object.
    objects = header.count(b"{") - 1 - (b'"__metadata__"' in header)
    if objects > LIMITS.tensors:
        raise LimitError(f"{file_name}: {objects} tensors; the limit is {LIMITS.tensors}")
    document = parse_object(
        header[LENGTH_BYTES:],
        file_name,
        max_bytes=LIMITS.safetensors_header_bytes,
        max_depth=_DEPTH,
        max_values=_VALUES * LIMITS.tensors,
    )
    metadata = _metadata(document.pop("__metadata__", {}), file_name)
    ranges = sorted((_tensor(name, entry, file_name) for name, entry in document.items()), key=lambda item: item[:2])
    _check_gapless(ranges, data_bytes, file_name)
    return Shard(file_name, tuple(info for _, _, info in ranges), header, metadata)


def build_header(tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """The header of a file that holds ``tensors`` in this order, padded so that the data is 8-byte aligned."""
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for info in tensors:
        offsets = [offset, offset + info.nbytes]
        document[info.name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
        offset += info.nbytes
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _metadata(value: Any, file_name: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(f"{file_name}: __metadata__ must be an object of strings")
    try:
        "".join([*value, *value.values()]).encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{file_name}: __metadata__ is not Unicode") from error
    return value


def _tensor(name: str, entry: Any, file_name: str) -> tuple[int, int, TensorInfo]:
    check_name(name, file_name)
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise FormatError(f"{file_name}: tensor {name} must have dtype, shape and data_offsets, and nothing else")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise FormatError(f"{file_name}: tensor {name} has the unknown dtype {shown(dtype)}")
    shape, offsets = _naturals(entry["shape"]), _naturals(entry["data_offsets"])
    if shape is None or offsets is None or len(offsets) != 2:
        raise FormatError(f"{file_name}: tensor {name} has a malformed shape or malformed offsets")
    # Checked before anything is multiplied: a hostile shape could otherwise cost time and memory.
    if len(shape) > MAX_RANK or any(size > LIMITS.numel for size in shape):
        raise LimitError(f"{file_name}: tensor {name} has too many or too large dimensions")
    info = TensorInfo(name, dtype, shape)
    if info.numel > LIMITS.numel:
        raise LimitError(f"{file_name}: tensor {name} has {info.numel} elements; the limit is {LIMITS.numel}")
    begin, end = offsets
    if end - begin != info.nbytes:
        raise FormatError(
            f"{file_name}: tensor {name} takes {end - begin} bytes where {dtype} {list(shape)} needs {info.nbytes}"
        )
    return begin, end, info


def _naturals(value: Any) -> tuple[int, ...] | None:
    # type(), not isinstance(): JSON's true would pass for 1.
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        return None
    return tuple(value)


def _check_gapless(ranges: list[tuple[int, int, TensorInfo]], data_bytes: int, file_name: str) -> None:
    offset = 0
    for begin, end, info in ranges:
        if begin != offset:
            fault = "overlaps the tensor before it" if begin < offset else "leaves a gap before it"
            raise FormatError(f"{file_name}: tensor {info.name} {fault}")
        offset = end
    if offset != data_bytes:
        fault = "cut short" if data_bytes < offset else "too long"
        raise CorruptError(
            file_name,
            f"the file is {fault}: {data_bytes:,} bytes of data where its header says {offset:,}",
            hint="download or copy the checkpoint again",
        )


def _aligned(tensors: Iterable[TensorInfo]) -> bool:
    offset = 0
    for info in tensors:
        if offset % info.item_bytes:
            return False
        offset += info.nbytes
    return True


SINGLE_NAME = "model.safetensors"
"""The weight file of a checkpoint that is not sharded."""


class SafetensorsCheckpoint(StoredCheckpoint):
    """A checkpoint of one or several safetensors files; ``shards`` are its weight files, in order.

    Attributes:
        index: ``model.safetensors.index.json`` exactly as stored; empty for a checkpoint of one file.
    """

    format = "safetensors"

    def __init__(
        self,
        path: Location,
        paths: Sequence[Location],
        *,
        index: bytes = b"",
        weight_map: Mapping[str, str] | None = None,
        hub: str = "",
    ) -> None:
        """Open the weight files and read their headers."""
        own = frozenset({INDEX_NAME, *(file.name for file in paths)})
        self.index, self.blockwise = index, isinstance(path, BucketPath)
        # File, and offset of the tensor's first byte in it.
        self._locations: dict[str, tuple[OpenFile, int]] = {}
        with opening() as files:
            super().__init__(path, files, path if path.is_dir() else None, own, hub)
            # The header is read through the handle that later reads the data, so that both are of one file.
            opened = [files.open(file) for file in paths]
            self.shards = tuple(map(_shard_of, opened))
            if weight_map is not None:
                with in_folder(path):
                    contents = [(shard.file_name, [info.name for info in shard.tensors]) for shard in self.shards]
                    check_index(weight_map, contents, INDEX_NAME)
            self.tensors: Mapping[str, TensorInfo] = {
                info.name: info for shard in self.shards for info in shard.tensors
            }
            if len(self.tensors) > LIMITS.tensors:
                raise LimitError(f"{path}: {len(self.tensors)} tensors; the limit is {LIMITS.tensors}")
        for file, shard in zip(opened, self.shards, strict=True):
            offset = len(shard.header)
            for info in shard.tensors:
                self._locations[info.name] = (file, offset)
                offset += info.nbytes

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        info = self._checked(name, start, stop)
        width = ITEM_BYTES[info.dtype]
        file, offset = self._locations[name]
        begin, size, kind = offset + start * width, (stop - start) * width, np.dtype(f"<u{width}")
        data = file.at_hand(begin, size) if size else None
        if data is not None and (values := np.frombuffer(data, kind)).flags.aligned:
            return values
        memory = np.empty(size, np.uint8) if into is None else into
        if data is not None:
            memory[:] = np.frombuffer(data, np.uint8)
        elif size and not file.fill(memory.data, begin):
            raise CorruptError(name, f"{self.path} was cut short while it was read")
        return memory.view(kind)

    def map(self) -> None:
        """Map the files."""
        self._files.map()
        self.blockwise = True

    def expect(self, name: str, start: int, stop: int) -> int:
        """Fetch elements that are read soon."""
        if (info := self.tensors.get(name)) is None:
            return 0
        file, offset = self._locations[name]
        start, stop = min(start, info.numel), min(stop, info.numel)
        return file.expect(offset + start * info.item_bytes, (stop - start) * info.item_bytes)


def open_path(path: Location, *, hub: str = "") -> SafetensorsCheckpoint:
    """Open one file, or a directory with ``model.safetensors``, an index and shards, or one safetensors file."""
    if not path.is_dir():
        return SafetensorsCheckpoint(path, [path], hub=hub)
    names = names_in(path)
    # By name: a dangling link is a damaged download, not a checkpoint of another layout.
    if SINGLE_NAME in names:
        return SafetensorsCheckpoint(path, [path / SINGLE_NAME], hub=hub)
    if INDEX_NAME in names:
        index = read_whole(path / INDEX_NAME, LIMITS.index_json_bytes)
        with in_folder(path):
            weight_map = parse_index(index, INDEX_NAME, (".safetensors",))
        files = [path / name for name in sorted(set(weight_map.values()))]
        return SafetensorsCheckpoint(path, files, index=index, weight_map=weight_map, hub=hub)
    return SafetensorsCheckpoint(path, [_only_weights(path)], hub=hub)


def _only_weights(directory: Location) -> Location:
    files = [directory / name for name in sorted(names_in(directory)) if fnmatch(name, "*.safetensors")]
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if len(files) == 1 and not _is_one_of_many(files[0].name):
        return files[0]
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:3])
        # A write to a bucket that was killed leaves shards without their index too.
        shards = any(_is_one_of_many(file.name) for file in files)
        instead = "write the checkpoint again" if shards else "name one of the files"
        raise FormatError(
            f"{directory}: {len(files)} safetensors files ({names}, ...) but no {INDEX_NAME}",
            hint=f"put {INDEX_NAME} beside them, or {instead}",
        )
    with reading(directory):
        fault, hint = (f"only a part ({files[0].name}) and no index", "") if files else why_no_weights(directory)
    raise NotFoundError(
        f"{directory}: {fault or 'no safetensors weights'}",
        hint=hint or f"a checkpoint directory holds {SINGLE_NAME}, or {INDEX_NAME} and its shards",
    )


def _is_one_of_many(name: str) -> bool:
    # One shard, left by an interrupted download, must not pass for the whole model.
    match = re.fullmatch(r".*-\d+-of-(\d+)\.safetensors", name)
    return bool(match and int(match[1]) > 1)


def _shard_of(file: OpenFile) -> Shard:
    with in_folder(file.path.parent), explaining(file):
        size, name = file.size, file.path.name
        first = bytearray(min(LENGTH_BYTES, size))
        file.fill(memoryview(first), 0)
        header = bytearray(LENGTH_BYTES + header_length(bytes(first), size, name))
        if not file.fill(memoryview(header), 0):
            raise CorruptError(name, "cut short while it was read")
        return parse_header(bytes(header), size - len(header), name)
