"""Export: write one artifact to one file, for machines without a network between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from maskreg.digest import Digest
from maskreg.disk import replacing
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import archive
from maskreg.workspace.result import Result
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


@dataclass(frozen=True)
class Exported(Result):
    """An artifact that was written to a file.

    Attributes:
        ref: its name, which is in the file too.
        digest: the artifact.
        parts: the parts that are in the file.
        path: the file; None when it was a stream.
        size: size of the file in bytes.
    """

    ref: Ref
    digest: Digest
    parts: tuple[str, ...]
    path: Path | None
    size: int


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
    """
    if out == "":
        raise UsageError("the path to write to is empty")
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        with naming(ref):
            if not isinstance(out, str | Path):
                return _exported(archive.export_file(space.local, ref, out, progress=progress), None)
            path = Path(out)
            with replacing(path, force=force) as file:
                exported = archive.export_file(space.local, ref, file, progress=progress)
            return _exported(exported, path)


def _exported(exported: archive.Exported, path: Path | None) -> Exported:
    return Exported(exported.ref, exported.digest, tuple(sorted(exported.parts)), path, exported.bytes)
