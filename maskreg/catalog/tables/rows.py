"""Table rows from manifests, ref entries, measurements and events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.tables.columns import Row
from maskreg.catalog.tables.seals import check_seals, sealed
from maskreg.catalog.tables.words import indexed_words
from maskreg.digest import Digest
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry

BATCH = 500
"""Rows written at a time by a rebuild."""

_LABEL = 200
_LARGEST = (1 << 63) - 1


Overlap = tuple[float | None, str | None]
"""Value and reference mask of the latest recorded ``rlvr_overlap``; None twice when there is none."""

NO_OVERLAP: Overlap = (None, None)
"""Of an artifact without a recording."""


def artifact_row(digest: Digest, manifest: Manifest, overlap: Overlap) -> Row:
    """The row of an artifact: its manifest's facts, and the recorded overlap."""
    totals = manifest.totals
    row: Row = {
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
    return with_overlap(row, overlap)


def with_overlap(row: Row, overlap: Overlap) -> Row:
    """The row of an artifact with another recorded overlap."""
    return sealed("artifacts", {**row, "rlvr_overlap": overlap[0], "rlvr_against": overlap[1]})


def ref_row(entry: RefEntry) -> Row:
    """The columns of a ref."""
    card = entry.card
    # Indexed columns, written by others at any length; a PostgreSQL index entry holds at most 2,704 bytes.
    family, method, license = (text[:_LABEL] for text in (card.family, card.method, card.license))
    row: Row = {
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
        "words": indexed_words(entry.name, entry.project, card.family, card.description),
    }
    return sealed("refs", row)


def record_row(record: Measurement | Event) -> Row:
    """The columns of a measurement or an event; the database numbers it."""
    row = asdict(record)
    del row["id"]
    # As it will be read back, so that the seal fits.
    row["detail"] = json.loads(json.dumps(dict(record.detail)))
    return sealed("measurements" if isinstance(record, Measurement) else "events", row)


def measurement_of(row: Mapping[str, Any]) -> Measurement:
    """The measurement of a row."""
    return Measurement(**{**_fields(Measurement, row), "digest": Digest(row["digest"])})


def event_of(row: Mapping[str, Any]) -> Event:
    """The event of a row."""
    return Event(**_fields(Event, row))


def indexed_of(row: Mapping[str, Any]) -> Indexed:
    """The indexed facts of a row."""
    return Indexed(**{**_fields(Indexed, row), "digest": Digest(row["digest"])})


def numbers_of(rows: Iterable[Mapping[str, Any]]) -> dict[Ref, int]:
    """Number of the indexed entry by ref."""
    return {Ref(row["project"], row["name"], row["tag"]): row["n"] for row in rows}


def pair_of(row: Mapping[str, Any]) -> tuple[Ref, Digest]:
    """The ref of a row, and the artifact that it points to."""
    return Ref(row["project"], row["name"], row["tag"]), Digest(row["digest"])


def unread_in(filled: Iterable[Row]) -> dict[str, str]:
    """Keys of the ref entries that could not be read when the index was filled, and why, from the rows that say so.

    Raises:
        ValueError: a row does not match its seal.
    """
    rows = list(filled)
    check_seals("filled", rows)
    return {key: why for row in rows for key, why in (row["unread"] or {}).items()}


def _fields(record: type[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(record)}


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Lists of at most ``BATCH`` rows, none of them empty."""
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch
