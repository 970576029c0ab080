"""Push: publish an artifact on a remote."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import Link, stands_on
from maskreg.artifact.presence import read_manifest
from maskreg.errors import ConfigError, PartAbsentError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.chains import Chains
from maskreg.registry.push import Pushed
from maskreg.registry.push import push as transfer
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened


def push(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    tag: str | None = None,
    parts: Collection[str] | None = None,
    force: bool = False,
    progress: Progress = SILENT,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> Pushed:
    """Publish an artifact on a remote.

    Missing objects are transferred first, each one hashed; the tag is set last. The links that an artifact stands on go
    first, the lowest first, as far as the remote lacks them: a chain that ends on a remote is whole there.

    Args:
        remote: name of the remote; the default remote when left out.
        tag: the tag to set on the remote; the local one when left out.
        parts: ``mask``, ``delta``, ``reverse``, ``analysis``; all that are in the local registry when left out.
        force: move the remote's tag even when another user set it since this machine last pulled or pushed it.

    Raises:
        MissingLinkError: a link that it stands on is neither here nor there.
        PartAbsentError: no part of it is in the local registry.
        ImmutableTagError: the remote's tag must not move to another artifact; nothing was sent.
    """
    with opened(workspace) as space:
        ref = space.name_of(artifact)
        destination = space.remote(remote)
        _check_catalog(destination)
        remote_ref = ref.with_tag(ref.tag if tag is None else tag)
        # A caller who takes the tag as it is now knows what it points to.
        force = bool(space.accept(destination, remote_ref, allow_rollback)) or force
        options: dict[str, Any] = {"tag": tag, "progress": progress, "jobs": space.settings.jobs, "parts": parts}
        for link in unsent(space.local, destination, ref):
            transfer(space.local, destination, replace(ref, digest=link.digest), force=force, **options)
            space.note(f"pushed link {link.digest.short}, which {ref} stands on")
        pushed = transfer(space.local, destination, ref, force=force, **options)
        if pushed.was is not None and pushed.was_at is not None:
            when = f"{pushed.was_at:%Y-%m-%d %H:%M:%S} UTC"
            space.note(
                f"{pushed.ref} on {pushed.remote} moved from {pushed.was.short}, set by {pushed.was_by} at {when}"
            )
        if parts is None:
            artifact = space.find(ref).artifact
            for part in sorted(frozenset(artifact.manifest.parts) - artifact.present()):
                fault, own = f"the {part} part is not here, and was not sent", replace(ref, digest=None)
                space.note(PartAbsentError(fault, hint="to bring it", ref=own, not_pulled=part))
        note_catalog(space, destination)
        return pushed


def unsent(local: Registry, remote: Registry, ref: Ref) -> list[Link]:
    """The links below an artifact that a remote lacks, the lowest first."""
    head = local.resolve(ref).digest
    if stands_on(read_manifest(local.store, head)[1]) is None:
        return []
    links = []
    for link in Chains([local, remote]).below(head):
        if link.digest != head:
            if remote.store.head(artifact_prefix(link.digest) + MANIFEST) is not None:
                break
            links.append(link)
    return links[::-1]


def _check_catalog(remote: Registry) -> None:
    # A catalog of another version could not list what is published, so it stops the push before it starts.
    problem = None if remote.index.open() else remote.index.problem
    if isinstance(problem, ConfigError):
        problem.facts["remote"] = remote.remote_name
        raise problem
