"""Remove: take a name away."""

from __future__ import annotations

from maskreg.registry import tags
from maskreg.registry.tags import Expected
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.tag import Tagged
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened


def remove(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> Tagged:
    """Remove a name. :func:`restore` brings it back until :func:`gc` has deleted the artifact.

    Args:
        artifact: a reference, or the result that named the artifact.
        remote: remove it on this remote instead of in the local registry.
        by: who does it, as the log records it; by default the user of this process.
        expected: id of the tag's latest entry; if it is another by now, nothing is changed.
        workspace: where the name is; by default what the settings say.

    Returns:
        The name, and the artifact that it pointed to.

    Raises:
        UsageError: an artifact without a name.
        NotFoundError: there is no such tag, or it points to another digest than the reference says.
        StaleError: the tag is not at the expected entry.
        ConflictError: the tag was moved concurrently.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    with opened(workspace) as space:
        registry = space.registry(remote)
        ref = space.name_of(artifact, registry)
        entry = tags.remove(registry, ref, by=by, expected=expected)
        note_catalog(space, registry)
        return Tagged.of(entry)
