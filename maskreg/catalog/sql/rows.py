"""Table rows from manifests, ref entries, measurements and events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from maskreg.catalog.records import Event, Measurement
from maskreg.catalog.sql.statement import folded
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry

Row = dict[str, Any]
"""Values by column name."""

BATCH = 500
"""Rows written at a time by a rebuild."""

_LABEL = 200
_LARGEST = (1 << 63) - 1


def artifact_row(digest: Digest, manifest: Manifest) -> Row:
    """The columns that follow from an artifact's manifest."""
    totals = manifest.totals
    return {
        "digest": str(digest),
        "kind": manifest.kind,
        "rule": manifest.rule,
        "exact": manifest.exact,
        "density": totals.density,
        "ffn_density": totals.ffn.density,
        "ffn_share": totals.ffn.mask_share,
        "ffn_lift": totals.ffn.mask_lift,
        "nnz": totals.nnz,
        "numel": totals.numel,
        "params": manifest.source.params,
        "size": manifest.size,
        "source_root": manifest.source.root,
        "source_hub": manifest.source.hub,
        "target_root": manifest.target.root,
    }


def ref_row(entry: RefEntry) -> Row:
    """The columns of a ref."""
    card = entry.card
    # Indexed columns, written by others at any length; a PostgreSQL index entry holds at most 2,704 bytes.
    family, method, license = (text[:_LABEL] for text in (card.family, card.method, card.license))
    return {
        "project": entry.project,
        "name": entry.name,
        "tag": entry.tag,
        "n": min(entry.n, _LARGEST),
        "digest": None if entry.deleted else entry.digest,
        "deleted": entry.deleted,
        "family": family,
        "method": method,
        "license": license,
        "description": card.description,
        "meta": dict(card.meta),
        "by": entry.by,
        "at": entry.at,
        "origin": entry.origin,
        "folded": folded(entry.name, entry.project, card.family, card.description),
    }


def record_row(record: Measurement | Event) -> Row:
    """The columns of a measurement or an event; the database numbers it."""
    row = asdict(record)
    del row["id"]
    row["detail"] = dict(record.detail)
    return row


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Lists of at most ``BATCH`` rows, none of them empty."""
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch
