"""History: what a tag pointed to over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.result import Result
from maskreg.workspace.workspace import Workspace, as_ref, naming, opened


@dataclass(frozen=True)
class HistoryEntry(Result):
    """One change of a tag.

    Attributes:
        n: number of the entry, from 1.
        digest: what the tag points to from then on; None when it was removed.
        deleted: whether the tag was removed.
        by: who changed it.
        at: when, by the clock of whoever did (aware, UTC).
        origin: uuid of the registry that it was pulled from; empty when it was set in this one.
    """

    n: int
    digest: Digest | None
    deleted: bool
    by: str
    at: datetime
    origin: str


def history(
    ref: str | Ref, *, remote: str | None = None, workspace: Workspace | None = None
) -> tuple[HistoryEntry, ...]:
    """List what a tag pointed to over time, the oldest first.

    Args:
        ref: ``[project/]name[:tag]``.
        remote: look on this remote instead of in the local registry.
        workspace: by default what the settings say.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        NotFoundError: the tag never existed.
        CorruptError: the log is damaged.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    name = as_ref(ref)
    with opened(workspace) as space, naming(name):
        log = space.registry(remote).history(name)
    return tuple(HistoryEntry(entry.n, entry.digest, entry.deleted, entry.by, entry.at, entry.origin) for entry in log)
