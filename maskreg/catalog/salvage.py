"""A new SQLite catalog in place of a damaged one, with what can still be read of what only it held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import DBAPIError

from maskreg.catalog.address import Address, parse_address
from maskreg.catalog.engine import WRITE, make_engine
from maskreg.catalog.models import Base
from maskreg.catalog.records import Event, Measurement
from maskreg.catalog.rows import Row, record_row
from maskreg.catalog.schema import bring_up
from maskreg.digest import Digest
from maskreg.errors import UsageError

# Rows pass through these values again, so that a damaged one is left behind.
_KEPT: dict[str, Callable[[Row], Row]] = {
    "measurements": lambda row: record_row(Measurement(**{**row, "digest": Digest(row["digest"])})),
    "events": lambda row: record_row(Event(**row)),
    "seen_sources": lambda row: {key: row[key] for key in ("root", "path", "at")},
}

# The driver's own error, and what it takes to find a text, a date or a document in bytes that are none.
_DAMAGE = (DBAPIError, ValueError, TypeError)


def set_aside(url: str) -> Path:
    """Put a new catalog in the place of a damaged SQLite file, which is renamed.

    The new one has no artifacts and no refs (``Catalog.rebuild`` brings them back), and the measurements, events
    and seen sources that could still be read.

    Returns:
        where the damaged file is now; nothing of it is deleted.

    Raises:
        UsageError: the catalog is not a file.
        MaskregError: what ``Catalog.open`` raises when the new file cannot be made.
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
    # The log belongs to the file: left behind, it would be played into the new one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _readable(damaged: Address) -> Iterator[tuple[str, Row]]:
    engine = make_engine(damaged)
    try:
        # No connection at all: the file is no database, and there is nothing to be read.
        with suppress(*_DAMAGE), engine.connect() as source:
            for name, made in _KEPT.items():
                table = Base.metadata.tables[name]
                for key in list(_keys(source, table)):
                    with suppress(*_DAMAGE):
                        row = source.execute(select(table).where(table.c.id == key)).one_or_none()
                        if row is not None:
                            yield name, made(dict(row._mapping))
    finally:
        engine.dispose()


def _keys(source: Connection, table: Table) -> Iterator[Any]:
    # Up to the first page that cannot be read.
    with suppress(*_DAMAGE):
        yield from source.execute(select(table.c.id).order_by(table.c.id)).scalars()
