"""Import: read an artifact that ``export`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from maskreg.errors import NotFoundError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.archive import Imported, import_file
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import Workspace, as_ref, opened


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
            imported = import_file(space.local, file, ref=ref, progress=progress)
        else:
            path = Path(file)
            if not path.is_file():
                raise NotFoundError(f"there is no file {file}")
            with path.open("rb") as stream:
                imported = import_file(space.local, stream, ref=ref, progress=progress)
        note_catalog(space, space.local)
        return imported
