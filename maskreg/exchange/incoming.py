"""What formats share in reading: documents and folders of other tools, and the target that an update gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from maskreg.bucket import Location
from maskreg.checkpoint import companions
from maskreg.checkpoint.base import Checkpoint
from maskreg.document import parse_object
from maskreg.errors import FormatError, NotFoundError
from maskreg.exchange.lineage import Lineage
from maskreg.exchange.patched import Patch, PatchedCheckpoint
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown


def parse_document(data: bytes, path: Location, limits: Limits) -> dict[str, Any]:
    """A JSON object that another tool wrote.

    Raises:
        DataError: malformed, or beyond a limit.
    """
    return parse_object(data, str(path), max_bytes=limits.index_json_bytes, max_values=16 * limits.tensors)


def tensor_of(source: Checkpoint, name: str) -> TensorInfo:
    """A tensor of the source that an update names.

    Raises:
        FormatError: the source has no such tensor.
    """
    info = source.tensors.get(name)
    if info is None:
        raise FormatError(
            f"tensor {shown(name)}: not in the source {source.path}",
            hint="give the source checkpoint that the update was made on",
        )
    return info


def require_folder(path: Location, accepts: str) -> None:
    """Refuse what is not a folder.

    Raises:
        NotFoundError: it is none.
    """
    if not path.is_dir():
        raise NotFoundError(f"{path}: not a folder", hint=f"this format is {accepts}")


def target_of(
    source: Checkpoint,
    patches: Mapping[str, Patch],
    path: Location,
    lineage: Lineage | None,
    own: Collection[str],
    limits: Limits,
) -> PatchedCheckpoint:
    """The checkpoint that an update gives: the source's tensors and small files, each replaced where the update has it.

    Args:
        source: the checkpoint that it belongs to.
        patches: by tensor name.
        path: of the update; small files beside it belong to the target.
        lineage: where it comes from, if maskreg wrote it.
        own: names of the update's own files.
        limits: the largest small file.

    Raises:
        FormatError: the lineage has a check for a tensor that the source lacks.
    """
    brought = companions.small_files(path, limits) if path.is_dir() else {}
    brought = {name: file for name, file in brought.items() if name not in own}
    removed = lineage.removed_files if lineage else ()
    kept = {name: file for name, file in source.small_files().items() if name not in removed}
    checks = lineage.checks if lineage else {}
    for name in checks:
        tensor_of(source, name)
    hub = lineage.target.hub if lineage else ""
    return PatchedCheckpoint(source, patches, path=path, hub=hub, files={**kept, **brought}, checks=checks)
