"""Remove: take a name away."""

from __future__ import annotations

from maskreg.registry import tags
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.tag import Tagged
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


def remove(artifact: ArtifactLike, *, workspace: Workspace | None = None) -> Tagged:
    """Remove a name. :func:`restore` brings it back until :func:`gc` has deleted the artifact.

    Args:
        artifact: a reference, or the result that named the artifact.
        workspace: where the name is; by default the local registry of the settings.

    Returns:
        The name, and the artifact that it pointed to.

    Raises:
        UsageError: an artifact without a name.
        NotFoundError: there is no such tag, or it points to another digest than the reference says.
        ConflictError: the tag was moved concurrently.
    """
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        with naming(ref):
            entry = tags.remove(space.local, ref)
        note_catalog(space, space.local)
        return Tagged.of(entry)
