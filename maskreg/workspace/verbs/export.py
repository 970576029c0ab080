"""Export: write one artifact to one file, for machines without a network between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from maskreg.disk import filling, replacing, require_space
from maskreg.errors import NotAllowedError, NotFoundError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.archive import Exported, Imported, import_file, packing
from maskreg.workspace.storing import note_absent_parts, note_catalog
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_ref, opened

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

    Raises:
        PartAbsentError: no part of it is in the local registry.
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

    Raises:
        FormatError: not a file that ``export`` writes.
        ConflictError: the name points to another artifact.
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
