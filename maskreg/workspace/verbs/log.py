"""Log: what a tag pointed to over time, and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Literal, TypeAlias

from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.result import Result
from maskreg.store.reflog import RefEntry
from maskreg.workspace.workspace import ArtifactLike, Workspace, registry_of

Action: TypeAlias = Literal["created", "moved", "annotated", "fixed", "removed", "restored", "set again"]
"""What an entry did to its tag.

``fixed`` made it immutable. After a removal, ``restored`` brought the same artifact back, ``set again`` another one.
"""


@dataclass(frozen=True)
class LogEntry(Result):
    """One change of a tag.

    Attributes:
        id: names the entry and everything before it; ``annotate`` and others take it as ``expected``.
        action: what it did.
        digest: what the tag points to from then on; None when it was removed.
        deleted: whether the tag was removed.
        origin: uuid of the registry that it was pulled from; empty when it was set in this one.
        immutable: whether the tag must never point to another artifact.
    """

    ref: Ref
    n: int
    id: Digest
    action: Action
    digest: Digest | None
    deleted: bool
    by: str
    at: datetime
    origin: str
    immutable: bool


def log(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> tuple[LogEntry, ...]:
    """List what a tag pointed to over time, the oldest first.

    Raises:
        NotFoundError: the tag never existed.
        CorruptError: the log is damaged.
    """
    with registry_of(remote, workspace) as (space, registry):
        ref = space.name_of(artifact, registry)
        space.accept(registry, ref, allow_rollback)
        return changes(registry.history(ref))


def changes(entries: Sequence[RefEntry]) -> tuple[LogEntry, ...]:
    """What each entry of a whole log did, in its order."""
    return tuple(
        LogEntry(e.ref, e.n, e.id, _action(before, e), e.digest, e.deleted, e.by, e.at, e.origin, e.immutable)
        for before, e in pairwise([None, *entries])
        if e is not None
    )


def _action(before: RefEntry | None, entry: RefEntry) -> Action:
    if before is None:
        return "created"
    if entry.deleted:
        return "removed"
    if before.deleted:
        return "restored" if entry.digest == before.removed else "set again"
    if entry.digest != before.digest:
        return "moved"
    return "fixed" if entry.immutable and not before.immutable else "annotated"
