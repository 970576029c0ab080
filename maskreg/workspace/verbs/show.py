"""Show: everything about one artifact."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from maskreg.artifact.manifest import Group, Manifest
from maskreg.artifact.presence import listing, read_manifest, whole_parts
from maskreg.artifact.scope import selected_rows
from maskreg.artifact.totals import grouped, totals_of
from maskreg.catalog import Measurement
from maskreg.catalog.query import RLVR_OVERLAP, SEED_OVERLAP
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.digest import Digest
from maskreg.errors import UnavailableError, UsageError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.searching import overlaps_on_server
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened, registry_of


@dataclass(frozen=True)
class RecordedOverlap:
    """An overlap with another mask, as ``compare --record`` kept it.

    Attributes:
        lift: observed overlap / overlap of uniform random masks.
        against: digest of the other mask.
        at: when it was recorded (aware).
    """

    lift: float
    against: str
    at: datetime


@dataclass(frozen=True)
class Summary:
    """What a registry knows about an artifact without its tensor table.

    Attributes:
        manifest: what was computed, and from what.
        present: parts that the registry holds.
        rlvr_overlap, seed_overlap: as in :class:`Description`.
    """

    manifest: Manifest
    present: tuple[str, ...]
    rlvr_overlap: RecordedOverlap | None
    seed_overlap: RecordedOverlap | None


@dataclass(frozen=True)
class Description(Named):
    """What a registry knows about an artifact.

    Attributes:
        present: parts that the registry holds.
        rlvr_overlap: latest overlap with the mask that ``rlvr-reference`` pointed to; None when none was recorded.
        seed_overlap: latest overlap with another seed of the same recipe, the ceiling of the former.
    """

    rlvr_overlap: RecordedOverlap | None
    seed_overlap: RecordedOverlap | None
    present: tuple[str, ...]

    def groups(self, by: str, selection: Selection = ALL) -> dict[str, Group]:
        """Coordinates by group, and how many of them moved."""
        rows = [row for row in selected_rows(self.artifact, selection) if row.numel]
        totals = totals_of(rows) if selection else self.manifest.totals
        if by in ("role", "layer"):
            return dict(totals.roles if by == "role" else totals.layers)
        if by not in ("module", "tensor"):
            raise UsageError(f"there are no groups by {by!r}", hint="choose role, layer, module or tensor")
        return grouped(rows, by)

    def to_json(self, by: str | None = None, selection: Selection = ALL) -> dict[str, object]:
        """What ``--json`` prints: everything but the object table."""
        groups: dict[str, object] = {}
        if by is not None:
            groups["selection"] = selection.to_json()
            groups["groups"] = {
                label: {"numel": group.numel, "nnz": group.nnz, "density": group.density}
                for label, group in self.groups(by, selection).items()
            }
        return {**super().to_json(), **groups}


def show(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> Description:
    """Describe an artifact: figures, source and target, parts, lineage, card and recorded overlaps."""
    with opened(workspace) as space:
        named = _find(space, artifact, remote, allow_rollback)
        registry = space.registry(remote)
        rlvr, seeds = _overlaps(registry, named.digest)
        note_catalog(space, registry)
        present = tuple(sorted(named.artifact.present()))
        return Description(named.ref, named.artifact, named.card, rlvr, seeds, present)


def summarize(digest: Digest, *, remote: str | None = None, workspace: Workspace | None = None) -> Summary:
    """The same as :func:`show` without the tensor table, so the manifest's figures are not checked against it.

    Raises:
        DataError: its manifest or a part of it is damaged.
    """
    with registry_of(remote, workspace) as (space, registry):
        _, manifest = read_manifest(registry.store, digest)
        present = whole_parts(registry.store, digest, manifest, listing(registry.store, digest))
        rlvr, seeds = _overlaps(registry, digest)
        note_catalog(space, registry)
        return Summary(manifest, tuple(sorted(present)), rlvr, seeds)


def manifest_bytes(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    allow_rollback: bool = False,
    workspace: Workspace | None = None,
) -> bytes:
    """The canonical bytes of an artifact's manifest, whose sha256 is its digest; arguments as for :func:`show`."""
    with opened(workspace) as space:
        named = _find(space, artifact, remote, allow_rollback)
        # As stored: the digest also covers keys of newer versions.
        return read_manifest(named.artifact.store, named.digest)[0]


def _find(space: Workspace, artifact: ArtifactLike, remote: str | None, allow_rollback: bool) -> Named:
    registry = space.registry(remote)
    parsed = space.parse(artifact, registry)
    if isinstance(parsed, Ref) and remote:
        space.accept(registry, parsed, allow_rollback)
    return space.find(artifact if remote is None else parsed, remote)


def _overlaps(registry: Registry, digest: Digest) -> tuple[RecordedOverlap | None, RecordedOverlap | None]:
    # A description does not depend on the catalog.
    if (service := registry.store.service) is not None:
        try:
            overlaps = overlaps_on_server(service, digest)
        except UnavailableError as error:
            registry.index.problem = error
            return None, None
    else:
        overlaps = registry.index.overlaps(digest)
    return _overlap(overlaps.get(RLVR_OVERLAP)), _overlap(overlaps.get(SEED_OVERLAP))


def _overlap(measurement: Measurement | None) -> RecordedOverlap | None:
    if measurement is None:
        return None
    return RecordedOverlap(measurement.value, measurement.against, measurement.at)
