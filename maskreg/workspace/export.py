"""Export: write one artifact to one file, for machines without a network between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from maskreg.disk import filling, replacing, require_space
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.registry.transfer.archive import Exported, packing
from maskreg.workspace.storing import note_absent_parts
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened

_WHAT = "the file"


def export(
    artifact: ArtifactLike,
    out: str | Path | BinaryIO,
    *,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Exported:
    """Write an artifact, its card and its name to one file.

    Every object is hashed. A file appears when it is complete; a stream is written front to back.

    Args:
        artifact: a reference, or the result that named the artifact.
        out: the file to write, or a binary stream.
        force: replace a file that exists.
        progress: progress callback, in bytes written.
        workspace: where the artifact is; by default the local registry of the settings.

    Raises:
        UsageError: an artifact without a name, or an empty path.
        NotFoundError: there is no such artifact.
        PartAbsentError: no part of it is in the local registry.
        CorruptError: it is damaged.
        CannotCreateError: the file exists, or cannot be written.
        NoSpaceError: the disk would fill up, or became full.
    """
    if out == "":
        raise UsageError("the path to write to is empty")
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        packed = packing(space.local, ref)
        note_absent_parts(space, ref, "exported")
        if not isinstance(out, str | Path):
            return packed.write(out, progress)
        path = Path(out)
        with filling(path, packed.size, what=_WHAT), replacing(path, force=force) as file:
            require_space(path, packed.size, what=_WHAT)
            exported = packed.write(file, progress)
        return replace(exported, path=path)
