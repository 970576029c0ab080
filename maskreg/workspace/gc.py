"""Gc: delete what no name points to."""

from __future__ import annotations

from datetime import timedelta

from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.registry.collect import GRACE, collect
from maskreg.registry.garbage import Garbage
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.workspace import Workspace, opened


@check_arguments
def gc(
    grace: timedelta = GRACE,
    *,
    dry_run: bool = False,
    remote: str | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Garbage:
    """Delete artifacts that no name points to, and what interrupted work left behind.

    Safe while others push and pull: an artifact that is named in the meantime is kept.

    Args:
        grace: keep what was written, or lost its name, less than this ago.
        dry_run: report what would be deleted, and delete nothing.
        remote: collect on a remote instead of in the local registry.
        progress: progress callback, in deleted bytes.
        workspace: by default what the settings say.

    Raises:
        UsageError: ``grace`` is negative, or not a timedelta.
        CorruptError: no entry of a tag can be read, so the artifacts that it names are unknown.
        ConfigError: there is no such remote, or its format is of a newer version.
        UnavailableError: the remote does not answer, or offline is set.
    """
    if not isinstance(grace, timedelta) or grace < timedelta():
        raise UsageError(f"{grace!r} is not a grace period; pass a timedelta of 0 or more")
    with opened(workspace) as space:
        return collect(space.registry(remote), grace, dry_run=dry_run, progress=progress)
