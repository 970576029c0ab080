"""History: what a tag pointed to over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from maskreg.digest import Digest
from maskreg.result import Result
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


@dataclass(frozen=True)
class HistoryEntry(Result):
    """One change of a tag.

    Attributes:
        n: number of the entry, from 1.
        digest: what the tag points to from then on; None when it was removed.
        deleted: whether the tag was removed.
        by: who changed it.
        at: when, by the clock of whoever changed it (aware, UTC).
        origin: uuid of the registry that it was pulled from; empty when it was set in this one.
        immutable: whether the tag must never point to another artifact.
    """

    n: int
    digest: Digest | None
    deleted: bool
    by: str
    at: datetime
    origin: str
    immutable: bool


@check_arguments
def history(
    artifact: ArtifactLike, *, remote: str | None = None, workspace: Workspace | None = None
) -> tuple[HistoryEntry, ...]:
    """List what a tag pointed to over time, the oldest first.

    Args:
        artifact: a reference, or the result that named the artifact.
        remote: look on this remote instead of in the local registry.
        workspace: by default what the settings say.

    Raises:
        BadRefError: a text that does not follow the grammar.
        UsageError: an artifact without a name.
        NotFoundError: the tag never existed.
        CorruptError: the log is damaged.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        with naming(ref):
            log = space.registry(remote).history(ref)
    return tuple(HistoryEntry(e.n, e.digest, e.deleted, e.by, e.at, e.origin, e.immutable) for e in log)
