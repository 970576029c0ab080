"""What formats share in reading: documents of other tools, and the source patched and checked while it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from maskreg.bucket import Location
from maskreg.checkpoint.archive import DTYPES
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.files import read_whole, small_files
from maskreg.document import checked, parse_object
from maskreg.errors import FormatError, NotFoundError
from maskreg.exchange.base import Values, parse_lineage
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, shown

StructT = TypeVar("StructT")

MANIFEST_NAME = "manifest.json"
"""The document of several formats about the other files of a folder."""

Patch = Callable[[int, int, "npt.NDArray[Any]"], None]
"""Turns elements ``[start, stop)`` of one source tensor into the target's, in place, on any thread."""


class PatchedCheckpoint(Checkpoint):
    """A checkpoint with some tensors patched."""

    def __init__(
        self,
        source: Checkpoint,
        patches: Mapping[str, Patch],
        *,
        path: Location,
        hub: str = "",
        files: Mapping[str, Location] | None = None,
    ) -> None:
        """Patch a checkpoint."""
        self.format = source.format
        self.path, self.hub, self.tensors = path, hub, source.tensors
        self._source, self._patches = source, patches
        self._files = source.small_files() if files is None else files

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        values = self._source.read(name, start, stop, into)
        if (patch := self._patches.get(name)) is not None:
            # A source that has its values in memory gives those, and they are not ours to change.
            if into is None or values.ctypes.data != into.ctypes.data:
                values = values.copy()
            patch(start, stop, values)
        return values

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on what is read soon."""
        return self._source.expect(name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files: name to path."""
        return self._files

    def close(self) -> None:
        """Do nothing: the source belongs to its opener."""


def parse_document(data: bytes, path: Location) -> dict[str, Any]:
    """A JSON object that another tool wrote."""
    return parse_object(data, str(path), max_bytes=LIMITS.index_json_bytes, max_values=16 * LIMITS.tensors)


def tensor_of(source: Checkpoint, name: str) -> TensorInfo:
    """A tensor of the source that an update names."""
    info = source.tensors.get(name)
    if info is None:
        raise FormatError(
            f"tensor {shown(name)}: not in the source {source.path}",
            hint="give the source checkpoint that the update was made on",
        )
    return info


def same_form(source: Checkpoint, name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    """A tensor of the source that an update names, in the form that it states; ``dtype``: torch's name."""
    info = tensor_of(source, name)
    if (DTYPES.get(dtype), shape) != (info.dtype, info.shape):
        stated = f"{shown(dtype)} {list(shape)}; the source has {info.dtype} {list(info.shape)}"
        raise FormatError(f"tensor {name}: {stated}")
    return info


def parse_manifest(folder: Path, struct: type[StructT], accepts: str) -> StructT:
    """The manifest of a folder."""
    require_folder(folder, accepts)
    path = folder / MANIFEST_NAME
    return checked(struct, parse_document(read_whole(path, LIMITS.index_json_bytes), path), str(path))


def require_folder(path: Location, accepts: str) -> None:
    """Refuse what is not a folder."""
    if not path.is_dir():
        raise NotFoundError(f"{path}: not a folder", hint=f"this format is {accepts}")


def patched(
    source: Checkpoint,
    patches: Mapping[str, Patch],
    path: Location,
    text: Any,
    *,
    document: Location | None = None,
) -> Values:
    """An update: the source, with each tensor and small file of the update in its place.

    Args:
        path: where it lies.
        text: what its ``document``, or itself, says of where it comes from.
    """
    lineage = parse_lineage(text, str(document or path))
    brought = small_files(path) if path.is_dir() else {}
    if document is not None:
        brought = {name: file for name, file in brought.items() if name != document.name}
    removed = lineage.removed_files if lineage else ()
    kept = {name: file for name, file in source.small_files().items() if name not in removed}
    for name in lineage.checks if lineage else ():
        tensor_of(source, name)
    hub = lineage.target.hub if lineage else ""
    return Values(PatchedCheckpoint(source, patches, path=path, hub=hub, files={**kept, **brought}), lineage)
