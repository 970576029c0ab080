"""Recording a comparison as measurements of the artifacts that were compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any

from maskreg.catalog import Measurement, Query
from maskreg.catalog.query import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.errors import LimitError, NotFoundError
from maskreg.ref import Ref
from maskreg.words import counted
from maskreg.workspace.lineage import ancestry
from maskreg.workspace.workspace import Workspace, opened

if TYPE_CHECKING:
    from maskreg.analysis.comparison import Comparison, PairOverlap
    from maskreg.catalog import SearchResult
    from maskreg.digest import Digest
    from maskreg.registry import Registry
    from maskreg.workspace.workspace import Named


REFERENCE_TAG = "rlvr-reference"
"""The tag that marks the mask which other masks of its source are measured against."""

SEED = "seed"
"""The key of a card's metadata that says which seed a run had."""


def record(
    registry: Registry, comparison: Comparison, masks: Sequence[Named], selection: Selection = ALL
) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Record every pair of a comparison on its first mask.

    Always as ``overlap``; as ``rlvr_overlap`` when the second mask is what ``rlvr-reference`` points to for the
    source of the first; and on both as ``seed_overlap`` when their cards say the same family and method and another
    ``seed``, and both are of one source and rule. The value is the lift.

    Returns:
        What was recorded, and notes about what could not be.
    """
    catalog = registry.catalog
    if catalog is None:
        raise registry.catalog_problem or NotFoundError("this registry has no catalog to record in")
    measurements: list[Measurement] = []
    notes: list[str] = []
    # Asked once for each source, not once for each pair.
    references = {root: reference_of(registry, root) for root in {_root(mask) for mask in masks[:-1]}}
    for (left, right), pair in zip(combinations(masks, 2), comparison.pairs, strict=True):
        lift = pair.whole.overlap.lift
        if lift is None:
            notes.append(f"nothing is recorded of {left.name} and {right.name}: the lift of an empty mask is undefined")
            continue
        overlap = Measurement(
            left.digest, OVERLAP, lift, right.digest, str(selection), _detail(pair, left, right), registry.by
        )
        measurements.append(overlap)
        reference = references[_root(left)]
        if reference is not None and right.digest == reference.digest != left.digest:
            name = str(Ref(reference.project, reference.name, reference.tag))
            measurements.append(replace(overlap, metric=RLVR_OVERLAP, detail={**overlap.detail, "reference": name}))
        if _are_two_seeds(left, right):
            seeds = {**overlap.detail, "seeds": [left.card.meta[SEED], right.card.meta[SEED]]}
            forward = replace(overlap, metric=SEED_OVERLAP, detail=seeds)
            measurements += [forward, replace(forward, digest=right.digest, against=left.digest)]
    for measurement in measurements:
        catalog.record(measurement)
    return tuple(measurements), tuple(notes)


def reference_of(registry: Registry, root: str) -> SearchResult | None:
    """The mask that ``rlvr-reference`` points to for a source; the latest where several names have that tag."""
    results = registry.search(Query(tag=REFERENCE_TAG, source_root=root, sort="created", limit=1)).results
    return results[0] if results else None


def _root(mask: Named) -> str:
    return mask.artifact.manifest.source.root


def _are_two_seeds(left: Named, right: Named) -> bool:
    def setting(mask: Named) -> tuple[str, ...]:
        return mask.card.family, mask.card.method, _root(mask), mask.artifact.manifest.rule

    seeds = {mask.card.meta.get(SEED, "") for mask in (left, right)}
    known = bool(left.card.family and left.card.method) and "" not in seeds
    return known and setting(left) == setting(right) and len(seeds) == 2


def _detail(pair: PairOverlap, left: Named, right: Named) -> dict[str, Any]:
    figures = pair.whole.to_json()
    return {
        "refs": [left.name, right.name],
        "digests": list(pair.digests),
        "rules": list(pair.rules),
        "scope": pair.scope,
        "source": _root(left),
        "jaccard": figures["jaccard"],
        "lift_max": figures["lift_max"],
        "phi": figures["phi"],
        "nulls": {name: null["ratio"] for name, null in figures["nulls"].items()},
        "mantel_haenszel": {"none": figures["odds_ratio"], **figures["mantel_haenszel"]},
        "notes": list(pair.notes),
    }


COMPARISON = "comparison"
"""The metric of a kept comparison: its value is the lift, its detail all figures."""

MOST_COORDINATES = 1 << 32
"""Coordinates of all masks together that are compared while a client waits."""

_LEFT_OUT = ("names", "tensors")


@dataclass(frozen=True)
class PairFigures:
    """What two masks share.

    Attributes:
        figures: as ``compare --json`` has them of one pair, without names and without figures of single tensors.
        at: when they were measured; None when just now, and not kept because the lift is undefined.
        kept: whether they were read from the catalog.
    """

    figures: Mapping[str, Any]
    at: datetime | None
    kept: bool


def check_size(sizes: Iterable[int], most: int, names: Iterable[object]) -> None:
    """Refuse masks that are too large to be compared while a client waits."""
    if (total := sum(sizes)) > most:
        raise LimitError(
            f"the masks have {counted(total, 'coordinate')}; this server compares at most {most:,}",
            compared=" ".join(map(str, names)),
        )


def compare_pair(
    first: Digest,
    second: Digest,
    *,
    most_coordinates: int = MOST_COORDINATES,
    remote: str | None = None,
    by: str = "",
    workspace: Workspace | None = None,
) -> PairFigures:
    """The overlap of two artifacts, from the catalog or measured now, without the source checkpoint.

    Artifacts never change, so what was measured once holds for ever.

    Args:
        first: an artifact.
        second: another one.
        most_coordinates: of both together that are compared.

    Raises:
        NotFoundError: one is not there.
        PartAbsentError: one has no mask there.
        PairMismatchError: they are of different rules, tensors or sources.
        LimitError: they have too many coordinates.
    """
    from maskreg.flow.overlap.measure import measure_overlap

    with opened(workspace) as space:
        registry = space.registry(remote)
        catalog = registry.index.must_open()
        if kept := catalog.measurements(first, metrics=(COMPARISON,), against=second):
            # The artifacts may be gone since.
            for digest in (first, second):
                if not catalog.has(digest):
                    raise NotFoundError(f"artifact {digest.short} is not in {registry.name}")
            return PairFigures(kept[-1].detail, kept[-1].at, kept=True)
        artifacts = [registry.artifact(digest) for digest in (first, second)]
        for artifact in artifacts:
            artifact.require("mask")
        check_size([artifact.manifest.totals.numel for artifact in artifacts], most_coordinates, (first, second))
        ancestries = [ancestry(artifact, remote=remote, workspace=space) for artifact in artifacts]
        pair = measure_overlap(artifacts, ancestries=ancestries).pairs[0]
        figures = {key: value for key, value in pair.to_json().items() if key not in _LEFT_OUT}
        lift = pair.whole.overlap.lift
        if lift is None:
            return PairFigures(figures, None, kept=False)
        measurement = Measurement(first, COMPARISON, lift, second, detail=figures, by=by or registry.by)
        catalog.record(measurement)
        return PairFigures(figures, measurement.at, kept=False)
