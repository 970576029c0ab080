"""Lineage: which artifacts an artifact was derived from and how, and density by layer at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.parallel import ordered
from maskreg.words import natural
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened, registry_of

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Group, Manifest
    from maskreg.artifact.reader import Artifact
    from maskreg.flow.overlap.measure import Ancestry
    from maskreg.registry import Registry

READERS = 8
"""Manifests that are read at a time, because a bucket is far away."""

_GENERATIONS = 64
"""Ancestors of which the parents are followed at most."""


@dataclass(frozen=True)
class Facts:
    """What pages show of an artifact's manifest.

    Attributes:
        size: bytes of all objects.
        moved: coordinates that moved, of those that were compared.
        layers: the same by layer, in the order of the model.
        parents: digests of what it was derived from.
        is_published: it was published by a run: it stands on another link, or holds no mask.
        is_link: it stands on another artifact.
    """

    size: int
    moved: Group
    layers: Mapping[str, Group]
    parents: tuple[str, ...]
    is_published: bool
    is_link: bool


@dataclass(frozen=True)
class Ancestor:
    """An artifact of a lineage.

    Attributes:
        digest: the artifact.
        manifest: what was computed, and from what; None where the registry does not have it.
        depth: 0 for the artifact itself, 1 for its parents.
    """

    digest: Digest
    manifest: Manifest | None
    depth: int


@dataclass(frozen=True)
class Lineage:
    """An artifact and what it was derived from.

    Attributes:
        ancestors: the artifact itself first, then its parents, then theirs; each once.
        left_out: digests of further ancestors that were not followed.
    """

    ancestors: tuple[Ancestor, ...]
    left_out: tuple[Digest, ...]

    @property
    def links(self) -> tuple[tuple[Digest, Digest], ...]:
        """Pairs of an artifact and one of its parents, both of which are among the ancestors."""
        known = {ancestor.digest for ancestor in self.ancestors}
        return tuple(
            (ancestor.digest, Digest(parent))
            for ancestor in self.ancestors
            if ancestor.manifest is not None
            for parent in ancestor.manifest.parents
            if parent in known
        )


def lineage(
    artifact: ArtifactLike, *, limit: int = 12, remote: str | None = None, workspace: Workspace | None = None
) -> Lineage:
    """Follow the parents of an artifact, breadth first.

    Args:
        limit: most artifacts to follow, itself included.
    """
    with opened(workspace) as space:
        named = space.find(artifact, remote)
        registry = space.registry(remote)
        ancestors = {named.digest: Ancestor(named.digest, named.manifest, 0)}
        waiting = [(Digest(parent), 1) for parent in named.manifest.parents]
        left_out: dict[Digest, None] = {}
        while waiting:
            digest, depth = waiting.pop(0)
            if digest in ancestors:
                continue
            if len(ancestors) == limit:
                left_out[digest] = None
                continue
            manifest = None
            with suppress(NotFoundError, DataError):
                manifest = read_manifest(registry.store, digest)[1]
                waiting += [(Digest(parent), depth + 1) for parent in manifest.parents]
            ancestors[digest] = Ancestor(digest, manifest, depth)
        return Lineage(tuple(ancestors.values()), tuple(left_out))


def ancestry(artifact: Artifact, *, remote: str | None = None, workspace: Workspace | None = None) -> Ancestry:
    """What an artifact was made from, through all generations of which the registry has the manifests."""
    from maskreg.flow.overlap.measure import Ancestry

    if not artifact.manifest.parents:
        return Ancestry({})
    known = lineage(artifact, limit=_GENERATIONS, remote=remote, workspace=workspace)
    steps: dict[str, tuple[str, ...]] = {artifact.digest: ()}
    # Children come before their parents.
    for child in known.ancestors:
        manifest = child.manifest
        if manifest is not None:
            kind = (str(manifest.recipe["kind"]),) if manifest.recipe else ()
            for parent in manifest.parents:
                steps.setdefault(parent, (*kind, *steps[child.digest]))
    del steps[artifact.digest]
    gone = [ancestor.digest for ancestor in known.ancestors if ancestor.manifest is None]
    return Ancestry(steps, (*gone, *known.left_out))


def layer_densities(
    digests: Iterable[Digest], *, remote: str | None = None, workspace: Workspace | None = None
) -> dict[Digest, tuple[float, ...]]:
    """Density of each layer of artifacts, in the order of the model.

    Args:
        digests: the artifacts; those that cannot be read, or have no layers, are left out.
    """
    distinct = list(dict.fromkeys(digests))
    with registry_of(remote, workspace) as (_, registry):
        # Several at a time, because a bucket is far away.
        known = zip(distinct, ordered(lambda digest: facts_of(registry, digest), distinct, jobs=READERS), strict=True)
        layers = {digest: facts.layers.values() for digest, facts in known if facts is not None}
        return {digest: tuple(group.density for group in groups) for digest, groups in layers.items() if groups}


def facts_of(registry: Registry, digest: Digest) -> Facts | None:
    """The facts of an artifact; None where it cannot be read."""
    with suppress(NotFoundError, DataError):
        return _facts(registry, digest)
    return None


# A digest stands for the same bytes for good, so what was computed from them stays true.
@lru_cache(maxsize=5_000)
def _facts(registry: Registry, digest: Digest) -> Facts:
    from maskreg.artifact.manifest import Group, stands_on

    manifest = read_manifest(registry.store, digest)[1]
    totals, is_link = manifest.totals, stands_on(manifest) is not None
    layers = {layer: totals.layers[layer] for layer in sorted(totals.layers, key=natural)}
    moved = Group(numel=totals.numel, nnz=totals.nnz)
    is_published = is_link or (manifest.kind == "delta" and "mask" not in manifest.parts)
    return Facts(manifest.size, moved, layers, manifest.parents, is_published, is_link)
