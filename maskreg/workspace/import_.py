"""Import: read an artifact that ``export`` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import archive
from maskreg.workspace.result import Result
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import Workspace, as_ref, opened


@dataclass(frozen=True)
class Imported(Result):
    """An artifact that was read from a file.

    Attributes:
        ref: its name in the local registry.
        digest: the artifact.
        parts: the parts that were in the file.
        objects: objects that were not in the local registry yet.
        bytes: their size.
    """

    ref: Ref
    digest: Digest
    parts: tuple[str, ...]
    objects: int
    bytes: int


def import_(
    file: str | Path | BinaryIO,
    name: str | Ref | None = None,
    *,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Imported:
    """Read an artifact that :func:`export` wrote into the local registry.

    Every object is hashed before anything becomes visible.

    Args:
        file: the file, or a binary stream; a stream is read front to back.
        name: what to call the artifact; by default the name in the file.
        progress: progress callback, in bytes read.
        workspace: where it goes; by default the local registry of the settings.

    Raises:
        NotFoundError: there is no such file.
        FormatError: not a file that ``export`` writes.
        CorruptError: it is damaged or cut short.
        ConflictError: the name points to another artifact.
        NoSpaceError: the disk would fill up.
    """
    ref = None if name is None else as_ref(name)
    with opened(workspace) as space:
        if not isinstance(file, str | Path):
            imported = archive.import_file(space.local, file, ref=ref, progress=progress)
        else:
            path = Path(file)
            if not path.is_file():
                raise NotFoundError(f"there is no file {file}")
            with path.open("rb") as stream:
                imported = archive.import_file(space.local, stream, ref=ref, progress=progress)
        note_catalog(space, space.local)
    entry = imported.entry
    assert entry.digest is not None  # an entry that was just set
    return Imported(entry.ref, entry.digest, tuple(sorted(imported.parts)), imported.objects, imported.bytes)
