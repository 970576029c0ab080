"""Verify: hash what a registry holds."""

from __future__ import annotations

from maskreg.progress import SILENT, Progress
from maskreg.registry.verify import Verified
from maskreg.registry.verify import verify as hash_objects
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


@check_arguments
def verify(
    artifact: ArtifactLike | None = None,
    *,
    remote: str | None = None,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Verified:
    """Hash every object of an artifact, or of all, and report what is damaged.

    Damage is not an error: it is in the result, and does not stop the rest from being verified.

    Args:
        artifact: a reference, a digest or an open artifact; every artifact of the registry when left out.
        remote: verify a remote instead of the local registry.
        progress: progress callback, in hashed bytes, one phase for each artifact.
        workspace: by default what the settings say.

    Raises:
        NotFoundError: there is no such artifact.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
    """
    with opened(workspace) as space:
        registry = space.registry(remote)
        if artifact is None:
            return hash_objects(registry, progress=progress)
        if (ref := space.known_name(artifact)) is None:
            return hash_objects(registry, space.digest_of(artifact), progress=progress)
        with naming(ref):
            return hash_objects(registry, ref, progress=progress)
