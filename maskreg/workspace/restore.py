"""Restore: bring a removed name back."""

from __future__ import annotations

from maskreg.registry import tags
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.tag import Tagged
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


def restore(artifact: ArtifactLike, *, workspace: Workspace | None = None) -> Tagged:
    """Bring a removed name back as it was.

    Args:
        artifact: ``[project/]name[:tag]``, or the result of ``remove``.
        workspace: where the name was; by default the local registry of the settings.

    Raises:
        BadRefError: a text that does not follow the grammar.
        UsageError: the name was not removed, or an artifact without a name.
        NotFoundError: the name never existed, or its artifact was deleted.
        ConflictError: the name was set concurrently.
    """
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        with naming(ref):
            entry = tags.restore(space.local, ref)
        note_catalog(space, space.local)
        return Tagged.of(entry)
