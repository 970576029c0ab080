"""The checkpoint that an artifact was made from: the one that was given, or where this machine has seen it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

from maskreg.artifact.manifest import Side
from maskreg.artifact.reader import Artifact
from maskreg.bucket import is_url
from maskreg.checkpoint import Checkpoint
from maskreg.digest import Digest
from maskreg.errors import AlreadyAppliedError, ConfigError, MaskregError, NotFoundError, WrongCheckpointError, prefixed
from maskreg.parallel import worker_count
from maskreg.update.verified import VerifiedSource
from maskreg.workspace.storing import remember
from maskreg.workspace.workspace import CheckpointLike, Workspace


class SourceOptions(TypedDict, total=False):
    """Where the checkpoint of an artifact is."""

    source: CheckpointLike | None
    download: bool


def sources(
    workspace: Workspace, side: Side, *, source: CheckpointLike | None = None, download: bool = False
) -> Iterator[AbstractContextManager[Checkpoint]]:
    """The checkpoint that was given, else each that can be ``side``, until the work succeeds.

    ::

        for attempt in sources(space, manifest.source):
            with attempt as checkpoint:
                result = work(checkpoint)

    Tried in turn: paths where this machine has seen that checkpoint, the hub cache at the recorded commit, and with
    ``download`` the hub. A path that no longer exists, or now holds another checkpoint, is skipped. Where the work
    succeeded is remembered, so that it is found again.
    """
    if source is not None:
        yield _attempt(workspace, side, workspace.checkpoint(source, download=download, side="source"))
        return
    tried: list[str] = []
    facts: dict[str, Any] = {"options": {"download": True} if side.hub and not download else {"source": None}}
    for candidate, from_hub in _candidates(workspace, side, download):
        if candidate != side.hub and (why := _unreachable(candidate)):
            tried.append(why)
            continue
        try:
            checkpoint = workspace.opened_checkpoint(candidate, download=from_hub)
        except MaskregError as error:
            tried.append(f"{candidate} ({error.message})")
            if isinstance(error, ConfigError):  # without the hub's library, a download would not help either
                facts = {"hint": error.hint, **error.facts}
            continue
        wrong: list[WrongCheckpointError] = []
        yield _attempt(workspace, side, closing(checkpoint), wrong)
        if not wrong:
            return
        tried.append(f"{candidate} ({wrong[0].message})")
    attempts = "; ".join(tried) or "nothing, for this machine has not seen it"
    raise NotFoundError(
        f"the checkpoint that this applies to ({side.hub or Digest(side.root).short}) was not found; tried: {attempts}",
        **facts,
    )


def verified_source(
    workspace: Workspace, artifact: Artifact, *, source: CheckpointLike | None = None, download: bool = False
) -> CheckpointLike:
    """The source of an artifact, given or found; forms and ends of its tensors are those that the artifact records."""
    for attempt in sources(workspace, artifact.manifest.source, source=source, download=download):
        with attempt as found:
            VerifiedSource(artifact, found, jobs=worker_count(None))
    return found.path if source is None else source


def sources_if_any(
    workspace: Workspace,
    side: Side,
    *,
    required: bool,
    without: str = "",
    **find: Unpack[SourceOptions],
) -> Iterator[AbstractContextManager[Checkpoint | None]]:
    """Like :func:`sources`, for work that can be done in part without the checkpoint; the loop must run to its end."""
    try:
        yield from sources(workspace, side, **find)
        return
    except NotFoundError as error:
        if find.get("source") is not None or find.get("download") or required:
            raise
        missing = f"{error.message}{without}"
    yield nullcontext()
    # Not before: work that fails lacks more.
    workspace.note(missing)


@contextmanager
def _attempt(
    workspace: Workspace,
    side: Side,
    opened: AbstractContextManager[Checkpoint],
    wrong: list[WrongCheckpointError] | None = None,
) -> Iterator[Checkpoint]:
    """A checkpoint, remembered where the work succeeds; a wrong one is added to ``wrong``, or explained without."""
    with opened as checkpoint:
        try:
            yield checkpoint
            remember(workspace, side.root, checkpoint.path)
        except WrongCheckpointError as error:
            if wrong is not None:
                wrong.append(error)
                return
            if not isinstance(error, AlreadyAppliedError):
                raise _explained(workspace, side, checkpoint, error) from error.__cause__
            with prefixed(f"{checkpoint.path}: "):
                raise error from error.__cause__


def _explained(
    workspace: Workspace, side: Side, checkpoint: Checkpoint, error: WrongCheckpointError
) -> WrongCheckpointError:
    """Complete the error for a wrong checkpoint: its path, both roots, and where the right one was last seen."""
    error.message = f"{checkpoint.path}: {error.message}; expected root {Digest(side.root).short}"
    error.args = (error.message,)
    for path in _seen(workspace, side):
        if path == str(checkpoint.path.absolute()):
            continue
        if not _unreachable(path):
            error.hint, error.facts["options"] = "", {"source": path}
            break
        error.hint += f"; last seen on this machine at {path}, which is gone"
    else:
        error.hint += "" if "last seen" in error.hint else "; this machine has not seen it"
    return error


def _seen(workspace: Workspace, side: Side) -> list[str]:
    return workspace.local.index.seen_sources(side.root)


def _candidates(workspace: Workspace, side: Side, download: bool) -> Iterator[tuple[str, bool]]:
    yield from ((path, False) for path in _seen(workspace, side))
    if side.hub:
        yield side.hub, False
        if download:
            yield side.hub, True


def _unreachable(path: str) -> str:
    if is_url(path):
        return ""  # opening says what is wrong with it
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"gone: {path}"
    except OSError as error:
        return f"{path} ({error.strerror})"
    return ""
