"""Replacing a damaged SQLite catalog, keeping every row that can still be read.

::

    rename catalog.db, -wal, -shm   to catalog.db.damaged-TIME: nothing is deleted, and the log stays with its file
    create catalog.db               empty, this version's schema
    for table in measurements, events, seen_sources:      (the index comes back from the store)
        list the ids                up to the first unreadable page
        for each id                 read one row, validate it, insert it; skip it on any error

Reading row by row costs a query each, but one bad page then loses the rows on that page and not the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import DBAPIError

from maskreg.catalog.records import Event, Measurement
from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.models import Base
from maskreg.catalog.sql.rows import Row, record_row
from maskreg.catalog.sql.schema import bring_up
from maskreg.digest import Digest
from maskreg.errors import UsageError

# Rows are rebuilt through these checks, so that a damaged one is dropped.
_KEPT: dict[str, Callable[[Row], Row]] = {
    "measurements": lambda row: record_row(Measurement(**{**row, "digest": Digest(row["digest"])})),
    "events": lambda row: record_row(Event(**row)),
    "seen_sources": lambda row: {key: row[key] for key in ("root", "path", "at")},
}

# What reading a damaged row raises: the driver's error, or a text, date or JSON document that does not decode.
_DAMAGE = (DBAPIError, ValueError, TypeError)


def set_aside(url: str) -> Path:
    """Rename a damaged SQLite file and put a new catalog in its place, with the rows that could still be read.

    Returns:
        The renamed file.

    Raises:
        UsageError: the catalog is not a file.
        MaskregError: the new file cannot be created.
    """
    address = parse_address(url)
    if address.path is None:
        raise UsageError(f"{address} is not a file", hint="restore the database from its backup")
    aside = _rename(address.path)
    engine = make_engine(address)
    try:
        bring_up(address, engine)
        with engine.execution_options(**{WRITE: True}).begin() as connection:
            for name, row in _readable(parse_address(f"sqlite:///{aside}")):
                connection.execute(insert(Base.metadata.tables[name]).prefix_with("OR IGNORE"), [row])
    finally:
        engine.dispose()
    return aside


def _rename(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    # The log belongs to the file: left behind, SQLite would replay it into the new one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _readable(damaged: Address) -> Iterator[tuple[str, Row]]:
    engine = make_engine(damaged)
    try:
        # A file that is not a database does not even connect.
        with suppress(*_DAMAGE), engine.connect() as source:
            for name, checked in _KEPT.items():
                table = Base.metadata.tables[name]
                for key in list(_keys(source, table)):
                    with suppress(*_DAMAGE):
                        row = source.execute(select(table).where(table.c.id == key)).one_or_none()
                        if row is not None:
                            yield name, checked(dict(row._mapping))
    finally:
        engine.dispose()


def _keys(source: Connection, table: Table) -> Iterator[Any]:
    # Up to the first page that cannot be read.
    with suppress(*_DAMAGE):
        yield from source.execute(select(table.c.id).order_by(table.c.id)).scalars()
