"""Restore: bring a removed name back."""

from __future__ import annotations

from maskreg.registry import tags
from maskreg.registry.tags import Expected
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.tag import Tagged
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened


def restore(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> Tagged:
    """Bring a removed name back as it was.

    Args:
        artifact: ``[project/]name[:tag]``, or the result of ``remove``.
        remote: restore it on this remote instead of in the local registry.
        by: who does it, as the log records it; by default the user of this process.
        expected: id of the tag's latest entry; if it is another by now, nothing is changed.
        workspace: where the name was; by default what the settings say.

    Raises:
        BadRefError: a text that does not follow the grammar.
        UsageError: the name was not removed, or an artifact without a name.
        NotFoundError: the name never existed, or its artifact was deleted.
        StaleError: the tag is not at the expected entry.
        ConflictError: the name was set concurrently.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    with opened(workspace) as space:
        registry = space.registry(remote)
        ref = space.name_of(artifact, registry)
        entry = tags.restore(registry, ref, by=by, expected=expected)
        note_catalog(space, registry)
        return Tagged.of(entry)
