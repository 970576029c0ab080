"""Writing rows of the index."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from maskreg.catalog.sql.models import ArtifactRow, FilledRow, RefRow
from maskreg.catalog.sql.seals import dicts
from maskreg.catalog.sql.words import put_words
from maskreg.catalog.tables.columns import Row
from maskreg.catalog.tables.seals import sealed
from maskreg.store.entry import RefEntry, ref_of

REF_KEY = ("project", "name", "tag")
"""The columns that identify a ref."""


def put_artifacts(connection: Connection, rows: list[Row]) -> None:
    """Insert artifacts, or replace those with the same digest."""
    row = _insert(connection)(ArtifactRow)
    connection.execute(row.on_conflict_do_update(index_elements=["digest"], set_=_replaced(row, rows[0])), rows)


def put_refs(connection: Connection, rows: list[Row]) -> None:
    """Insert refs, or replace older entries of the same tags."""
    row = _insert(connection)(RefRow)
    # Entries arrive in any order; the one with the higher number is newer.
    newer = row.excluded.n >= RefRow.n
    upsert = row.on_conflict_do_update(index_elements=REF_KEY, set_=_replaced(row, rows[0]), where=newer)
    connection.execute(upsert, rows)
    put_words(connection, (row["words"] for row in rows))


def change_filled(connection: Connection, **values: Any) -> None:
    """Change columns of the row that says what the index was filled from, if there is one."""
    for filled in dicts(connection.execute(select(FilledRow.__table__).with_for_update())):
        connection.execute(update(FilledRow).values(sealed("filled", {**filled, **values})))


def forget_unread(connection: Connection, entry: RefEntry) -> None:
    """Take a tag off the list of those that could not be read: the entry at hand is newer."""
    for filled in dicts(connection.execute(select(FilledRow.__table__))):
        unread = dict(filled["unread"] or {})
        rest = {key: why for key, why in unread.items() if ref_of(key) != entry.ref}
        if len(rest) < len(unread):
            change_filled(connection, unread=rest)


def _insert(connection: Connection) -> Any:
    return sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert


def _replaced(insert: sqlite.Insert | postgresql.Insert, row: Row) -> dict[str, ColumnElement[Any]]:
    return {name: insert.excluded[name] for name in row}
