"""An artifact as programs read it: exact numbers, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.catalog import Measurement
    from maskreg.digest import Digest
    from maskreg.ref import Card, Ref
    from maskreg.workspace.recording import Recorded


def describe(
    ref: Ref | None,
    digest: Digest,
    manifest: Manifest,
    card: Card | None = None,
    *,
    present: Sequence[str] | None = None,
    measured: Recorded | None = None,
) -> dict[str, object]:
    """Everything about one artifact but its object table, as JSON values.

    Args:
        ref: its name; None when only its digest is known.
        digest: its digest.
        manifest: its manifest.
        card: what people say about it.
        present: parts that the registry holds; None when unknown.
        measured: overlaps with other masks that were recorded.
    """
    value: dict[str, object] = {
        "ref": str(ref) if ref else None,
        "digest": str(digest),
        "size": manifest.size,
        "density": manifest.totals.density,
        "card": card.to_json() if card else {},
        "manifest": manifest.model_dump(mode="json", by_alias=True, exclude={"objects"}),
    }
    if measured is not None:
        value |= {"rlvr_overlap": _overlap(measured.rlvr), "seed_overlap": _overlap(measured.seeds)}
    return value if present is None else {**value, "present": sorted(present)}


def _overlap(measurement: Measurement | None) -> dict[str, object] | None:
    if measurement is None:
        return None
    return {"lift": measurement.value, "against": measurement.against, "at": measurement.at.isoformat()}
