"""Table rows from manifests, ref entries, measurements and events, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from maskreg.catalog.query import COLUMNS, SearchResult
from maskreg.catalog.records import Event, Measurement
from maskreg.catalog.words import clean, indexed_words
from maskreg.digest import Digest
from maskreg.ref import Ref

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry

Row = dict[str, Any]
"""Values by column name."""

# Indexed columns, written by others at any length; a PostgreSQL index entry holds at most 2,704 bytes.
_LABEL = 200
_LARGEST = (1 << 63) - 1
_FIELDS = tuple(COLUMNS)


def artifact_row(digest: Digest, manifest: Manifest) -> Row:
    """The facts of a manifest; the recorded overlap is not among them."""
    facts = {column.name: column.of(manifest) for column in COLUMNS.values() if column.of is not None}
    return _cleaned({"digest": digest, **facts})


def ref_row(entry: RefEntry) -> Row:
    """The columns of a ref."""
    card = entry.card
    return _cleaned(
        {
            "project": entry.project,
            "name": entry.name,
            "tag": entry.tag,
            "n": min(entry.n, _LARGEST),
            "digest": None if entry.deleted else entry.digest,
            "deleted": entry.deleted,
            "family": card.family[:_LABEL],
            "method": card.method[:_LABEL],
            "license": card.license[:_LABEL],
            "description": card.description,
            "meta": dict(card.meta),
            "by": entry.by,
            "at": entry.at,
            "origin": entry.origin,
            "words": indexed_words(entry.name, entry.project, card.family, card.description),
        }
    )


def record_row(record: Measurement | Event) -> Row:
    """The columns of a measurement or an event; the database numbers it."""
    row = {**asdict(record), "detail": dict(record.detail)}
    del row["id"]
    return row


def result_of(row: RowMapping) -> SearchResult:
    """The search result of a joined row."""
    return SearchResult(**{**{name: row[name] for name in _FIELDS}, "digest": Digest(row["digest"])})


def measurement_of(row: RowMapping) -> Measurement:
    """The measurement of a row."""
    return Measurement(
        **{**{each.name: row[each.name] for each in fields(Measurement)}, "digest": Digest(row["digest"])}
    )


def event_of(row: RowMapping) -> Event:
    """The event of a row."""
    return Event(**{each.name: row[each.name] for each in fields(Event)})


def ref_of_row(row: RowMapping) -> Ref:
    """The ref of a row."""
    return Ref(row["project"], row["name"], row["tag"])


def numbers_of(rows: Iterable[RowMapping]) -> dict[Ref, int]:
    """Number of the indexed entry by ref."""
    return {ref_of_row(row): row["n"] for row in rows}


def _cleaned(row: Row) -> Row:
    # As it will be read back, so that rows can be compared.
    return {name: clean(value) if isinstance(value, str) else value for name, value in row.items()}
