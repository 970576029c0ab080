"""Verify: check what a registry holds."""

from __future__ import annotations

from maskreg.progress import SILENT, Progress
from maskreg.registry.audit.verify import Verified
from maskreg.registry.audit.verify import verify as audit
from maskreg.workspace.arguments import check_arguments
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming, opened


@check_arguments
def verify(
    artifact: ArtifactLike | None = None,
    *,
    remote: str | None = None,
    recount: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Verified:
    """Check an artifact, or everything in a registry, and report what is damaged.

    Every object is hashed and opened as readers open it, and the log of the artifact's tag is read whole. Without an
    artifact, all tags and artifacts are checked, the registry's identity, and its catalog against its store. Damage is
    not an error: it is in the result, and does not stop the rest from being verified.

    Args:
        artifact: a reference, a digest or an open artifact; every artifact of the registry when left out.
        remote: verify a remote instead of the local registry.
        recount: count the mask's bits too, and compare them with the figures that its publisher states.
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
            return audit(registry, recount=recount, progress=progress)
        if (ref := space.known_name(artifact)) is None:
            return audit(registry, space.digest_of(artifact), recount=recount, progress=progress)
        with naming(ref):
            return audit(registry, ref, recount=recount, progress=progress)
