"""The checkpoint that an artifact was made from: the one that was given, or where this machine has seen it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from maskreg.digest import Digest
from maskreg.errors import ConfigError, MaskregError, NotFoundError, WrongCheckpointError
from maskreg.workspace.workspace import CheckpointLike, Workspace

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Side
    from maskreg.checkpoint import Checkpoint

ResultT = TypeVar("ResultT")


def with_source(
    workspace: Workspace,
    side: Side,
    work: Callable[[Checkpoint], ResultT],
    *,
    source: CheckpointLike | None = None,
    download: bool = False,
) -> tuple[ResultT, Path]:
    """Do work on the checkpoint that was given, else on the first one that turns out to be ``side``.

    Tried in turn: paths where this machine has seen that checkpoint, the hub cache at the recorded commit, and with
    ``download`` the hub. A path that no longer exists, or now holds another checkpoint, is skipped.

    Args:
        workspace: knows which checkpoints were seen.
        side: identity of the checkpoint.
        work: what to do with it; raises ``WrongCheckpointError`` before anything becomes visible.
        source: the checkpoint, when somebody gave one.
        download: fetch from the hub what is not in its cache.

    Returns:
        What ``work`` returned, and the path of the checkpoint that it was done on.

    Raises:
        NotFoundError: none was given, and none of the candidates is it; says what was tried.
    """
    if source is not None:
        with workspace.checkpoint(source, download=download) as checkpoint:
            return work(checkpoint), checkpoint.path
    from maskreg.checkpoint import open_checkpoint

    tried: list[str] = []
    hint = workspace.retry_with("download") if side.hub and not download else workspace.retry_with("source", "PATH")
    for candidate, from_hub in _candidates(workspace, side, download):
        if candidate != side.hub and (why := _unreachable(candidate)):
            tried.append(why)
            continue
        try:
            opened = open_checkpoint(candidate, download=from_hub)
        except MaskregError as error:
            tried.append(f"{candidate} ({error.message})")
            if isinstance(error, ConfigError):  # without the hub's library, --download would not help either
                hint = error.hint
            continue
        with closing(opened) as checkpoint:
            try:
                return work(checkpoint), checkpoint.path
            except WrongCheckpointError as error:
                tried.append(f"{candidate} ({error.message})")
    attempts = "; ".join(tried) or "nothing, for this machine has not seen it"
    raise NotFoundError(
        f"the checkpoint that this applies to ({side.hub or Digest(side.root).short}) was not found; tried: {attempts}",
        hint=hint,
    )


def with_source_if_any(
    workspace: Workspace,
    side: Side,
    work: Callable[[Checkpoint | None], ResultT],
    *,
    source: CheckpointLike | None,
    download: bool,
    required: bool,
    without: str = "",
) -> ResultT:
    """Like :func:`with_source`, for work that can be done in part without the checkpoint.

    Args:
        workspace: knows which checkpoints were seen, and notes why there is none.
        side: identity of the checkpoint.
        work: what to do, with None when there is no checkpoint.
        source: the checkpoint, when somebody gave one.
        download: fetch from the hub; then it must be found.
        required: it must be found.
        without: what is missing without it, for the note.

    Raises:
        NotFoundError: it must be found, and was not.
    """
    try:
        return with_source(workspace, side, work, source=source, download=download)[0]
    except NotFoundError as error:
        if source is not None or download or required:
            raise
        workspace.note(f"{error.message}{without}")
    return work(None)


def _candidates(workspace: Workspace, side: Side, download: bool) -> Iterator[tuple[str, bool]]:
    catalog = workspace.local.catalog
    if catalog is not None:
        with suppress(MaskregError):
            yield from ((path, False) for path in catalog.seen_sources(side.root))
    if side.hub:
        yield side.hub, False
        if download:
            yield side.hub, True


def _unreachable(path: str) -> str:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"gone: {path}"
    except OSError as error:
        return f"{path} ({error.strerror})"
    return ""
