"""Keeping what a comparison found, as measurements of the artifacts that were compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from maskreg.analysis.comparison import Comparison, PairOverlap
from maskreg.catalog import Measurement, Query
from maskreg.catalog.records import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP
from maskreg.errors import NotFoundError
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.catalog import Catalog, Found
    from maskreg.digest import Digest
    from maskreg.ref import Card
    from maskreg.registry import Registry, Resolved

REFERENCE_TAG = "rlvr-reference"
"""The tag that marks the mask which other masks of its source are measured against."""

SEED = "seed"
"""The key of a card's metadata that says which seed a run had."""


@dataclass(frozen=True)
class Recorded:
    """What was measured of an artifact, the latest of each kind.

    Attributes:
        rlvr: its overlap with the mask that ``rlvr-reference`` pointed at.
        seeds: its overlap with a run of the same recipe and another seed, the ceiling of the former.
    """

    rlvr: Measurement | None
    seeds: Measurement | None


def record(
    here: Registry, contrast: Comparison, masks: Sequence[tuple[Resolved, Manifest]]
) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Record every pair of a comparison on its first mask.

    Always as ``overlap``; as ``rlvr_overlap`` when the second mask is what ``rlvr-reference`` points at for the
    source of the first; and on both as ``seed_overlap`` when their cards say the same family and method and another
    ``seed``, and both are of one source and rule. The value is the lift.

    Args:
        here: whose catalog they go into.
        contrast: the comparison.
        masks: what was compared, in its order.

    Returns:
        What was recorded, and notes about what could not be.

    Raises:
        MaskregError: there is no catalog, or it cannot be written.
    """
    catalog = here.catalog
    if catalog is None:
        raise here.catalog_problem or NotFoundError("this registry has no catalog to record in")
    made: list[Measurement] = []
    notes: list[str] = []
    for ((one, manifest), (other, others)), pair in zip(combinations(masks, 2), contrast.pairs, strict=True):
        lift = pair.whole.overlap.lift
        if lift is None:
            notes.append(f"nothing is recorded of {one.ref} and {other.ref}: the lift of an empty mask is undefined")
            continue
        overlap = Measurement(
            one.digest, OVERLAP, lift, other.digest, detail=_detail(pair, one, other, manifest), by=here.by
        )
        made.append(overlap)
        reference = reference_of(here, manifest.source.root)
        if reference is not None and other.digest == reference.digest != one.digest:
            name = str(Ref(reference.project, reference.name, reference.tag))
            made.append(replace(overlap, metric=RLVR_OVERLAP, detail={**overlap.detail, "reference": name}))
        if _two_seeds(one, manifest, other, others):
            seeds = {**overlap.detail, "seeds": [one.card.meta[SEED], other.card.meta[SEED]]}
            forth = replace(overlap, metric=SEED_OVERLAP, detail=seeds)
            made += [forth, replace(forth, digest=other.digest, against=one.digest)]
    for measurement in made:
        catalog.record(measurement)
    return tuple(made), tuple(notes)


def reference_of(here: Registry, root: str) -> Found | None:
    """The mask that ``rlvr-reference`` points at for a source; the latest, where several names have that tag.

    Args:
        here: where to look.
        root: the source's identity.
    """
    found = here.search(Query(sort="created"))
    return next((item for item in found if item.tag == REFERENCE_TAG and item.source_root == root), None)


def recorded(catalog: Catalog, digest: Digest) -> Recorded:
    """What was measured of an artifact."""
    latest = {found.metric: found for found in catalog.measurements(digest) if not found.by_group}
    return Recorded(latest.get(RLVR_OVERLAP), latest.get(SEED_OVERLAP))


def _two_seeds(one: Resolved, manifest: Manifest, other: Resolved, others: Manifest) -> bool:
    def recipe(card: Card, of: Manifest) -> tuple[str, ...]:
        return card.family, card.method, of.source.root, of.rule

    seeds = {resolved.card.meta.get(SEED, "") for resolved in (one, other)}
    same = recipe(one.card, manifest) == recipe(other.card, others)
    return bool(one.card.family and one.card.method) and same and len(seeds) == 2 and "" not in seeds


def _detail(pair: PairOverlap, one: Resolved, other: Resolved, manifest: Manifest) -> dict[str, Any]:
    figures = pair.whole.to_json()
    return {
        "refs": [str(one.ref), str(other.ref)],
        "digests": list(pair.digests),
        "rules": list(pair.rules),
        "scope": pair.scope,
        "source": manifest.source.root,
        "jaccard": figures["jaccard"],
        "lift_max": figures["lift_max"],
        "phi": figures["phi"],
        "nulls": {name: found["ratio"] for name, found in figures["nulls"].items()},
        "mantel_haenszel": {"none": figures["odds_ratio"], **figures["mantel_haenszel"]},
        "notes": list(pair.notes),
    }
