"""Distributed checkpoints of PyTorch (DCP): a directory with ``.metadata`` and a file or more for each process.

::

    .metadata        a pickle: every tensor's shape and chunks, and in which file each chunk lies
    __0_0.distcp     chunks of process 0, each an archive of torch.save, one after another
    __1_0.distcp     ...

Its classes are read as records: nothing of them is imported. Tensors of an optimizer are not even opened.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from maskreg.bucket import Location, on_disk
from maskreg.checkpoint.archive import Archive, info_of, piece_of
from maskreg.checkpoint.files import AGAIN, Files, in_folder, is_plain_name, names_in, opening, read_whole
from maskreg.checkpoint.pickles import Record, load_records
from maskreg.checkpoint.pieces import Box, Contents, Piece, PiecewiseCheckpoint, Shape
from maskreg.checkpoint.renaming import Path as KeyPath
from maskreg.checkpoint.renaming import weights_among
from maskreg.checkpoint.torch_files import READING
from maskreg.errors import CorruptError, FormatError, LimitError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, check_name, shown

METADATA_NAME = ".metadata"
"""The file that is written last, when all processes have written theirs."""

NAMES = re.compile(
    r"torch\.distributed\.checkpoint\.metadata "
    r"(Metadata|(Tensor|Bytes|Chunk)StorageMetadata|TensorProperties|MetadataIndex|StorageMeta|_MEM_FORMAT_ENCODING)|"
    r"torch\.distributed\.checkpoint\.filesystem _StorageInfo|torch \w+|torch\.serialization _get_layout|"
    r"pathlib(\._local)? \w+|collections OrderedDict|(builtins|__builtin__) getattr"
)
"""What the metadata can name. Python 3.11.0 to 3.11.3 pickle a member of an enum by ``getattr``."""


class _Location(NamedTuple):
    # Where a chunk lies.
    file: str
    offset: int
    size: int


def open_path(path: Location, *, hub: str = "") -> PiecewiseCheckpoint:
    """Open the model's tensors."""
    path = on_disk(path, READING)
    if not (path / METADATA_NAME).exists():
        raise NotFoundError(
            f"{path}: a distributed checkpoint without {METADATA_NAME}, which is written last: saving did not finish",
            hint="name the last checkpoint that has one",
        )
    with opening() as files:
        data = read_whole(path / METADATA_NAME, LIMITS.pickle_bytes)
        with in_folder(path):
            contents = _Saved(path, files, load_records(data, NAMES, METADATA_NAME)).contents()
        own = frozenset({METADATA_NAME, *(name for name in names_in(path) if name.endswith(".distcp"))})
        return PiecewiseCheckpoint("dcp", path, files, contents, companions=path, own=own, hub=hub)


class _Saved:
    """What the metadata tells, checked.

    Attributes:
        tensors: of all that was saved, by name: the whole tensor's record.
        paths: keys to it in the dictionaries that were saved, by name.
        locations: where each chunk lies, by name and begin.
    """

    def __init__(self, folder: Location, files: Files, metadata: Any) -> None:
        self._folder, self._files = folder, files
        fields = _fields(metadata, "Metadata")
        entries, chunks = fields.get("state_dict_metadata"), fields.get("storage_data")
        if not isinstance(entries, dict) or not isinstance(chunks, dict):
            raise _damaged("it lists no tensors or no files")
        self.tensors = {name: entry for name, entry in entries.items() if _is(entry, "TensorStorageMetadata")}
        self.others = [name for name, entry in entries.items() if not _is(entry, "TensorStorageMetadata")]
        flat = fields.get("planner_data")
        self.paths: dict[str, KeyPath] = {name: (str(name),) for name in entries}
        if isinstance(flat, dict):
            for name, keys in flat.items():
                if name in self.paths and isinstance(keys, tuple) and keys:
                    self.paths[name] = tuple(map(str, keys))
        self.locations: dict[tuple[str, Shape | None], _Location] = {}
        for index, info in chunks.items():
            key = _fields(index, "MetadataIndex")
            begin = key.get("offset")
            self.locations[str(key.get("fqn")), None if begin is None else _shape(begin)] = _location(info)

    def contents(self) -> Contents:
        tensors, paths = self.tensors, self.paths
        if len(tensors) > LIMITS.tensors:
            raise LimitError(f"{METADATA_NAME}: {len(tensors)} tensors; the limit is {LIMITS.tensors}")
        shapes = {name: _shape(_fields(entry, "TensorStorageMetadata").get("size")) for name, entry in tensors.items()}
        choice = weights_among({paths[name]: math.prod(shape) for name, shape in shapes.items()}, METADATA_NAME)
        contents = Contents(notes=choice.notes_with(map(paths.__getitem__, self.others)))
        for stored, shape in shapes.items():
            if name := choice.names.get(paths[stored], ""):
                check_name(name, METADATA_NAME)
                self._add(contents, name, stored, shape)
        return contents

    def _add(self, contents: Contents, name: str, stored: str, shape: Shape) -> None:
        fields = _fields(self.tensors[stored], "TensorStorageMetadata")
        info: TensorInfo | None = None
        pieces: list[Piece] = []
        for entry in fields.get("chunks", ()):
            chunk = _fields(entry, "ChunkStorageMetadata")
            box = Box(_shape(chunk.get("offsets")), _shape(chunk.get("sizes")))
            if len(box.begin) != len(shape) or len(box.shape) != len(shape):
                raise _damaged(f"a chunk of {shown(stored)} has other dimensions than the tensor")
            archive, tensor = self._tensor(stored, box)
            own = info_of(name, tensor, archive.document)
            if info is not None and own.dtype != info.dtype:
                raise _damaged(f"chunks of {shown(stored)} have several dtypes")
            info = TensorInfo(name, own.dtype, shape)
            if box.numel:
                pieces.append(piece_of(archive, tensor, box))
        if info is None:
            raise _damaged(f"{shown(stored)} has no chunks")
        contents.add(info, pieces, METADATA_NAME)

    def _tensor(self, stored: str, box: Box) -> tuple[Archive, Any]:
        """The tensor that is saved as a chunk, and the archive that holds it."""
        location = self.locations.get((stored, box.begin)) or self.locations.get((stored, None))
        if location is None:
            raise _damaged(f"it does not say where a chunk of {shown(stored)} lies")
        archive = Archive(self._files.open(self._folder / location.file), location.offset, location.size)
        if getattr(archive.saved, "shape", None) != box.shape:
            raise CorruptError(location.file, f"not the chunk of {shown(stored)} at byte {location.offset}", hint=AGAIN)
        return archive, archive.saved


def _is(value: Any, name: str) -> bool:
    return isinstance(value, Record) and type(value).__name__ == name


def _fields(value: Any, name: str) -> Mapping[str, Any]:
    if not _is(value, name) or not isinstance(value.state, dict):
        raise _damaged(f"no {name} where one should be")
    return value.state


def _shape(value: Any) -> Shape:
    if _is(value, "Size") and len(value.args) == 1:
        value = value.args[0]
    if not isinstance(value, tuple) or any(type(size) is not int or size < 0 for size in value):
        raise _damaged("a malformed shape")
    return value


def _location(info: Any) -> _Location:
    fields = _fields(info, "_StorageInfo")
    name, offset, size = (fields.get(key) for key in ("relative_path", "offset", "length"))
    if not isinstance(name, str) or not is_plain_name(name):
        raise _damaged(f"not the plain name of a file: {shown(name)}")
    if type(offset) is not int or type(size) is not int:
        raise _damaged("a malformed location of a chunk")
    if fields.get("transform_descriptors"):
        raise FormatError(
            f"{METADATA_NAME}: chunks that an extension changed when they were saved, such as {shown(name)}",
            hint="save the checkpoint without extensions",
        )
    return _Location(name, offset, size)


def _damaged(fault: str) -> FormatError:
    return FormatError(f"{METADATA_NAME}: damaged, or of an unknown version: {fault}", hint=AGAIN)
