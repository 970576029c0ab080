"""Verify: check what a registry holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from maskreg.digest import Digest
from maskreg.errors import DataError, NotAllowedError, NotFoundError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.verify import Verified, joined
from maskreg.registry.verify import verify as verify_registry
from maskreg.words import counted
from maskreg.workspace.workspace import ArtifactLike, Workspace, registry_of


def verify(
    *artifacts: ArtifactLike,
    remote: str | None = None,
    recount: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Verified:
    """Check artifacts, or everything in a registry, and report what is damaged.

    Every object is hashed and opened as readers open it, and the log of each artifact's tag is read whole. Without
    artifacts, all tags and artifacts are checked, the registry's identity, and its catalog.
    Damage is not an error: it is in the result, and does not stop the rest from being verified.

    A remote that is a service is asked to verify the artifacts itself, too, in its own time: here they are hashed as
    they come over the network.

    Args:
        artifacts: references, digests or open artifacts; every artifact of the registry when left out.
        recount: count the mask's bits too, and compare them with the figures that its publisher states.
    """
    with registry_of(remote, workspace) as (space, registry):
        if not artifacts:
            report = verify_registry(registry, recount=recount, progress=progress)
            if registry.served:
                live = {entry.digest for entry in registry.refs.heads([]) if entry.digest is not None}
                _let_verify(space, registry, sorted(live), counted(len(live), "artifact"))
            return report
        # Each is looked up before the first is hashed.
        parsed = [space.parse(artifact, registry) for artifact in artifacts]
        chosen = [item if isinstance(item, Ref | Digest) else item.digest for item in parsed]
        reports = []
        for item in dict.fromkeys(chosen):
            reports.append(verify_registry(registry, item, recount=recount, progress=progress))
            # The report says what is wrong with a tag that cannot be resolved.
            with suppress(DataError):
                digest = registry.resolve(item).digest if isinstance(item, Ref) else item
                _let_verify(space, registry, [digest], str(item))
        return joined(reports)


def _let_verify(space: Workspace, registry: Registry, digests: Sequence[Digest], what: str) -> None:
    # A service reads its disk or bucket itself, and shows the result to all readers.
    if (service := registry.store.service) is None:
        return
    refusals = []
    for digest in digests:
        try:
            service.want_verified(digest)
        except (NotAllowedError, NotFoundError) as error:
            refusals.append(error)

    def part(count: int) -> str:
        return what if count == len(digests) else f"{count} of {what}"

    if refusals:
        space.note(f"{registry.name} was not asked to verify {part(len(refusals))} itself: {refusals[0].message}")
    if taken := len(digests) - len(refusals):
        space.note(f"{registry.name} is going to verify {part(taken)} itself; the page of each says what came of it")
