"""Restore: bring a removed name back."""

from __future__ import annotations

from maskreg.ref import Ref
from maskreg.registry import tags
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.tag import Tagged
from maskreg.workspace.workspace import Workspace, as_ref, naming, opened


def restore(ref: str | Ref, *, workspace: Workspace | None = None) -> Tagged:
    """Bring a removed name back as it was.

    Args:
        ref: ``[project/]name[:tag]``.
        workspace: where the name was; by default the local registry of the settings.

    Raises:
        BadRefError: ``ref`` does not follow the grammar.
        UsageError: the name was not removed.
        NotFoundError: the name never existed, or its artifact was deleted.
        ConflictError: the name was set meanwhile.
    """
    name = as_ref(ref)
    with opened(workspace) as space, naming(name):
        entry = tags.restore(space.local, name)
        note_catalog(space, space.local)
        return Tagged.of(entry)
