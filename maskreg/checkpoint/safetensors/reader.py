"""Safetensors checkpoints, one file or many, read span by span."""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint import companions
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import OpenFile, close_all, in_folder, names_in, open_regular, read_whole, reading
from maskreg.checkpoint.layouts import HEAD_BYTES, INDEX_NAME, check_index, explained, parse_index, why_no_weights
from maskreg.checkpoint.safetensors.header import LENGTH_BYTES, Shard, header_length, parse_header
from maskreg.errors import (
    CorruptError,
    FormatError,
    LimitError,
    MaskregError,
    NotFoundError,
    UsageError,
)
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import ITEM_BYTES, TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory, Reopen

SINGLE_NAME = "model.safetensors"
"""The weight file of a checkpoint that is not sharded."""


class SafetensorsCheckpoint(Checkpoint):
    """A checkpoint of one or several safetensors files.

    Attributes:
        index: ``model.safetensors.index.json`` exactly as stored; empty for a checkpoint of one file.
    """

    format = "safetensors"

    def __init__(
        self,
        path: Location,
        files: Sequence[Location],
        *,
        index: bytes = b"",
        weight_map: Mapping[str, str] | None = None,
        hub: str = "",
        limits: Limits = LIMITS,
    ) -> None:
        """Open the weight files and read their headers."""
        self.path, self.index, self.hub = path, index, hub
        self.blockwise = isinstance(path, BucketPath)
        self._limits = limits
        opened: list[OpenFile] = []
        # The header is read through the handle that later reads the data, so that both are of one file.
        self._files = opened
        self._release = weakref.finalize(self, close_all, opened)
        try:
            self.shards = tuple(_open_shard(file, opened, limits) for file in files)
            if weight_map is not None:
                with in_folder(path):
                    contents = [(shard.file_name, [info.name for info in shard.tensors]) for shard in self.shards]
                    check_index(weight_map, contents, INDEX_NAME)
        except MaskregError:
            self.close()
            raise
        self.tensors: Mapping[str, TensorInfo] = {info.name: info for shard in self.shards for info in shard.tensors}
        if len(self.tensors) > limits.tensors:
            self.close()
            raise LimitError(f"{path}: {len(self.tensors)} tensors; the limit is {limits.tensors}")
        # File, and offset of the tensor's first byte in it.
        self._locations: dict[str, tuple[OpenFile, int]] = {}
        for file, shard in zip(opened, self.shards, strict=True):
            offset = len(shard.header)
            for info in shard.tensors:
                self._locations[info.name] = (file, offset)
                offset += info.nbytes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_release"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Headers came along, and files opened themselves again.
        vars(self).update(state)
        self._release = weakref.finalize(self, close_all, self._files)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        import numpy as np

        info = self.tensors[name]
        if not 0 <= start <= stop <= info.numel:
            raise ValueError(f"tensor {name} has {info.numel} elements, not [{start}, {stop})")
        if not self._release.alive:
            raise UsageError(f"{self.path}: the checkpoint is closed", hint="open it again")
        width = ITEM_BYTES[info.dtype]
        file, offset = self._locations[name]
        begin, size, kind = offset + start * width, (stop - start) * width, np.dtype(f"<u{width}")
        if size and (data := file.at_hand(begin, size)) is not None:
            values = np.frombuffer(data, kind)
            if values.flags.aligned:
                return values
            memory = np.empty(size, np.uint8) if into is None else into
            memory[:] = np.frombuffer(data, np.uint8)
            return memory.view(kind)
        memory = np.empty(size, np.uint8) if into is None else into
        if size and not file.fill(memory.data, begin):
            raise CorruptError(name, f"{self.path} was cut short while it was read")
        return memory.view(kind)

    def expect(self, name: str, start: int, stop: int) -> int:
        """Fetch elements that are read soon."""
        if (info := self.tensors.get(name)) is None:
            return 0
        file, offset = self._locations[name]
        start, stop = min(start, info.numel), min(stop, info.numel)
        return file.expect(offset + start * info.item_bytes, (stop - start) * info.item_bytes)

    def place_of(self, name: str, start: int = 0) -> str:
        """The name of the file that holds a tensor."""
        return self._locations[name][0].path.name if name in self._locations else ""

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights; none beside a single file."""
        return companions.small_files(self.path, self._limits) if self.path.is_dir() else {}

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied: other weight files and folders, small files that are too large."""
        if not self.path.is_dir():
            return ()
        own = frozenset({INDEX_NAME, *(shard.file_name for shard in self.shards)})
        return companions.other_weights(self.path, own, self._limits)

    def close(self) -> None:
        """Release file handles; no other thread may still be reading."""
        self._release()


def open_path(
    path: Location, *, hub: str = "", limits: Limits = LIMITS, reopen: Reopen | None = None
) -> SafetensorsCheckpoint:
    """Open one file, or a directory with ``model.safetensors``, an index and shards, or one safetensors file."""
    if not path.is_dir():
        return SafetensorsCheckpoint(path, [path], hub=hub, limits=limits)
    names = names_in(path)
    # By name: a dangling link is a damaged download, not a checkpoint of another layout.
    if SINGLE_NAME in names:
        return SafetensorsCheckpoint(path, [path / SINGLE_NAME], hub=hub, limits=limits)
    if INDEX_NAME in names:
        index = read_whole(path / INDEX_NAME, limits.index_json_bytes)
        with in_folder(path):
            weight_map = parse_index(index, INDEX_NAME, (".safetensors",), limits)
        files = [path / name for name in sorted(set(weight_map.values()))]
        return SafetensorsCheckpoint(path, files, index=index, weight_map=weight_map, hub=hub, limits=limits)
    return SafetensorsCheckpoint(path, [_only_weights(path)], hub=hub, limits=limits)


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


def _open_shard(path: Location, opened: list[OpenFile], limits: Limits) -> Shard:
    file = open_regular(path)
    opened.append(file)
    with in_folder(path.parent):
        try:
            return _read_header(file, limits)
        except FormatError as error:
            head = bytearray(min(HEAD_BYTES, file.size))
            file.fill(memoryview(head), 0)
            raise explained(error, path, bytes(head), file.size) from error


def _read_header(file: OpenFile, limits: Limits) -> Shard:
    size, name = file.size, file.path.name
    first = bytearray(min(LENGTH_BYTES, size))
    file.fill(memoryview(first), 0)
    header = bytearray(LENGTH_BYTES + header_length(bytes(first), size, name, limits))
    if not file.fill(memoryview(header), 0):
        raise CorruptError(name, "cut short while it was read")
    return parse_header(bytes(header), size - len(header), name, limits)
