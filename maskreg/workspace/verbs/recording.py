"""Recording a comparison as measurements of the artifacts that were compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from maskreg.catalog import Measurement, Query, SearchResult
from maskreg.catalog.query import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.analysis.comparison import Comparison, PairOverlap
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
    catalog = registry.index.must_open()
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
