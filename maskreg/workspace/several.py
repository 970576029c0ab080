"""Several artifacts in one command: each must exist before the first is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from maskreg.ref import Ref
from maskreg.workspace.workspace import ArtifactLike, Workspace, naming


def tags_of(workspace: Workspace, artifacts: Sequence[ArtifactLike], remote: str | None = None) -> tuple[Ref, ...]:
    """The tags of several artifacts of one registry, each with the digest that it points to now; each once.

    Args:
        workspace: where the registry is.
        artifacts: what names them.
        remote: which registry; the local one when left out.

    Raises:
        BadRefError: a text that names no artifact.
        UsageError: an artifact without a name, or with several.
        NotFoundError: there is no such tag.
    """
    refs = []
    registry = workspace.registry(remote)
    for artifact in artifacts:
        ref = workspace.name_of(artifact, registry)
        with naming(ref):
            refs.append(replace(ref, digest=registry.resolve(ref).digest))
    return tuple(dict.fromkeys(refs))
