"""Squash: one artifact in place of a chain of links, and give it a name."""

from __future__ import annotations

from typing import Any, Unpack

from maskreg.artifact.manifest import Link
from maskreg.errors import UsageError
from maskreg.flow.chain import Chained
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.registry.chains import Chains
from maskreg.workspace.sources import SourceOptions, sources
from maskreg.workspace.storing import Naming, Stored
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened


def squash(
    artifact: ArtifactLike,
    name: str | Ref | None = None,
    *,
    since: ArtifactLike | None = None,
    reversible: bool = False,
    description: str = "",
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **find: Unpack[SourceOptions],
) -> Stored:
    """Squash a chain of links into one artifact, and store it in the local registry.

    The result is what extracting the two ends of the chain gives, with the same digest. Nothing of the chain is written
    to the disk in between. The source is the one of the first link. Under another tag of the same name, readers that
    are far behind find the result.

    Args:
        since: squash only the links above this one; all when left out.
        reversible: keep the way back too.

    Raises:
        UsageError: ``since`` is not below the artifact, or is the artifact.
        MissingLinkError: a link is not in the local registry.
        BrokenChainError: the links do not follow one another.
    """
    from maskreg.flow.extract.extraction import extract

    card = Card(description=description).checked()
    with opened(workspace) as space:
        naming = Naming(space, name, careful=not force)
        last = space.find(artifact)
        derived = Card(last.card.family, last.card.method, last.card.license, last.card.description).checked()
        links = _links(space, last, None if since is None else space.find(since))
        artifacts = [(space.local.artifact(link.digest), False) for link in links]
        how: dict[str, Any] = {"reversible": reversible, "with_code": True, "progress": progress}
        for attempt in sources(space, links[0].manifest.source, **find):
            with attempt as checkpoint:
                chained = Chained(checkpoint, artifacts, with_code=True)
                squashed = extract(checkpoint, chained, space.root, **how)
        return naming.store(squashed.digest, card, squashed.notes, derived=derived)


def _links(space: Workspace, last: Named, since: Named | None) -> list[Link]:
    links: list[Link] = []
    for link in Chains([space.local]).below(last.digest):
        if since is not None and link.digest == since.digest:
            break
        links.append(link)
    else:
        if since is not None:
            raise UsageError(f"{last.name} does not stand on {since.name}", chain=last.name)
    if not links:
        raise UsageError(f"nothing to squash: both ends are {last.name}", chain=last.name)
    links.reverse()
    return links
