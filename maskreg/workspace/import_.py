"""Import: read an artifact that ``export`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from maskreg.errors import NotAllowedError, NotFoundError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.transfer.archive import Imported, import_file
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
            with _opened(Path(file)) as stream:
                imported = import_file(space.local, stream, ref=ref, progress=progress)
        note_catalog(space, space.local)
        return imported


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a directory; pass a file that export wrote") from error
    except PermissionError as error:
        raise NotAllowedError(f"{path}: not allowed to read it") from error
    except OSError as error:
        raise NotFoundError(f"{path}: there is no such file") from error
