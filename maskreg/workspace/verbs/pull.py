"""Pull and load: open artifacts of a remote or of the local registry."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.errors import NotFoundError, PartAbsentError, UnavailableError, UsageError, stating
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.pull import DEFAULT_PARTS
from maskreg.registry.pull import pull as transfer
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.registry import Registry


@dataclass(frozen=True)
class Pulled(Named):
    """An artifact that a pull brought into the local registry, or found there.

    Attributes:
        path: its directory.
        fetched_objects: objects that were transferred.
        fetched_bytes: their size.
        reused_bytes: size of the objects that were in the local registry already.
        note: a remark for people; empty when there is none.
    """

    path: Path
    remote: str
    fetched_objects: int
    fetched_bytes: int
    reused_bytes: int
    note: str


def load(ref: ArtifactLike, *, workspace: Workspace | None = None) -> Artifact:
    """Open an artifact of the local registry.

    Args:
        ref: ``[project/]name[:tag][@sha256:...]``, or a digest.
    """
    with opened(workspace) as space:
        return space.find(ref).artifact


def pull(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    parts: Collection[str] | None = DEFAULT_PARTS,
    to_apply: bool = False,
    progress: Progress = SILENT,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> Pulled:
    """Bring an artifact into the local registry, or find it there.

    Without ``remote`` the default remote is asked. Without any remote, or offline, the artifact must be in the local
    registry already.

    Args:
        remote: name of the remote; the default remote when left out.
        parts: parts to bring: ``mask``, ``delta``, ``reverse``, ``analysis``.
        to_apply: bring what patching a checkpoint reads: the delta, and of an artifact without one ``parts``.

    Raises:
        ConflictError: the local tag points elsewhere, and not because of this remote.
        CorruptError: the remote's objects, or the log of its tag, are damaged; nothing of them became visible.
    """
    with opened(workspace) as space:
        source = space.remote_to_ask(remote)
        ref = _name(space, artifact, source)
        space.accept(source or space.local, ref, allow_rollback)
        options: dict[str, Any] = {"progress": progress, "jobs": space.settings.jobs}
        with stating(ref=ref):
            try:
                pulled = transfer(space.local, source, ref, parts=("delta",) if to_apply else parts, **options)
            except PartAbsentError:
                if not to_apply:
                    raise
                pulled = transfer(space.local, source, ref, parts=parts, **options)
    return Pulled(
        ref=pulled.resolved.ref,
        artifact=pulled.artifact,
        card=pulled.resolved.card,
        path=pulled.path,
        remote=source.name if source else "",
        fetched_objects=pulled.fetched_objects,
        fetched_bytes=pulled.fetched_bytes,
        reused_bytes=pulled.reused_bytes,
        note=pulled.note,
    )


def with_mask(workspace: Workspace, artifact: ArtifactLike) -> Named:
    """Open an artifact with its mask, from the local registry or else pulled into it."""
    try:
        named = workspace.find(artifact)
        named.artifact.require("mask")
        return named
    except NotFoundError:
        ref = workspace.parse(artifact)
        if not isinstance(ref, Ref) or workspace.remote_to_ask() is None:
            raise
    return pull(ref, parts=("mask",), workspace=workspace)


def _name(workspace: Workspace, artifact: ArtifactLike, source: Registry | None) -> Ref:
    try:
        return workspace.name_of(artifact, source)
    except UnavailableError:
        # The remote cannot say what the digits mean there; the local registry might know them.
        with suppress(UsageError, NotFoundError):
            return workspace.name_of(artifact)
        raise
