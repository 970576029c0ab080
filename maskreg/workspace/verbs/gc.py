"""Gc: delete what no name points to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.registry.collect import GRACE, Collected, Garbage, collect
from maskreg.workspace.workspace import Workspace, opened


def gc(
    grace: timedelta = GRACE,
    *,
    dry_run: bool = False,
    remote: str | None = None,
    trust_listing: bool = False,
    delete_many: bool = False,
    announce: Callable[[Sequence[Collected]], object] | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Garbage:
    """Delete artifacts that no name points to, and what interrupted work left behind.

    Safe while others push and pull: an artifact that is named in the meantime is kept.

    Args:
        grace: keep what was written, or lost its name, less than this ago.
        dry_run: report what would be deleted, and delete nothing.
        trust_listing: believe the list of names although it is empty, or lacks entries that are known here or that
            artifacts mention.
        delete_many: delete more than half of all artifacts, if it comes to that.
        announce: is given what will be deleted, before anything is.

    Raises:
        UsageError: ``grace`` is negative, or not a timedelta; or more than half of all artifacts would be deleted, and
            more than ten.
        DataError: no name is listed beside artifacts.
        CorruptError: an entry that this machine has seen is lost.
    """
    if not isinstance(grace, timedelta) or grace < timedelta():
        raise UsageError(f"{grace!r} is not a grace period; pass a timedelta of 0 or more")
    with opened(workspace) as space:
        return collect(
            space.registry(remote),
            grace,
            dry_run=dry_run,
            trust_listing=trust_listing,
            delete_many=delete_many,
            announce=announce,
            progress=progress,
        )
