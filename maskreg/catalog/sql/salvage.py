"""Replacing a damaged SQLite catalog, keeping every row that can still be read.

::

    rename catalog.db, -wal, -shm   to catalog.db.damaged-TIME: nothing is deleted, and the log stays with its file
    create catalog.db               empty, this version's schema
    for table in measurements, events, seen_sources:      (the index comes back from the store)
        list the ids                up to the first unreadable page
        for each id                 read one row, compare it with its seal, insert it; skip it on any error

Reading row by row costs a query each, but one bad page then loses the rows on that page and not the table.
"""

from __future__ import annotations

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select
from sqlalchemy.exc import DBAPIError

from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.models import Base
from maskreg.catalog.sql.schema import bring_up
from maskreg.catalog.sql.seals import checked_rows, dicts, stored_sum, sum_anew
from maskreg.catalog.tables.columns import Row
from maskreg.catalog.tables.rows import event_of, measurement_of, record_row
from maskreg.catalog.tables.seals import SUMMED, seal_of
from maskreg.disk import creating
from maskreg.errors import RefusedError, TryAgainError, UsageError

_PATIENCE_SECONDS = 30.0

# Rows are rebuilt through these checks, so that a damaged one is dropped.
_KEPT: dict[str, Callable[[Row], Row]] = {
    "measurements": lambda row: record_row(measurement_of(row)),
    "events": lambda row: record_row(event_of(row)),
    "seen_sources": lambda row: {key: row[key] for key in ("root", "path", "at")},
}

# What reading a damaged row raises: the driver's error, or a text, date or JSON document that does not decode.
_DAMAGE = (DBAPIError, ValueError, TypeError)


def set_aside(url: str) -> tuple[Path, int]:
    """Rename a damaged SQLite file and put a new catalog in its place, with the rows that could still be read.

    Returns:
        The renamed file, and how many measurements and events were lost, as far as that can be told.

    Raises:
        UsageError: the catalog is not a file.
        MaskregError: the new file cannot be created.
    """
    address = parse_address(url)
    if address.path is None:
        raise UsageError(f"{address} is not a file", hint="restore the database from its backup")
    aside = _rename(address.path)
    engine = make_engine(address)
    lost = 0
    try:
        bring_up(address, engine)
        with (
            engine.execution_options(**{WRITE: True}).begin() as connection,
            _damaged(parse_address(f"sqlite:///{aside}")) as source,
        ):
            for name in _KEPT:
                table = Base.metadata.tables[name]
                rows, missing = ([], 0) if source is None else _readable(source, table)
                lost += missing
                # By time: row numbers are not sealed, and the latest measurement counts.
                for row in sorted(rows, key=itemgetter("at")):
                    connection.execute(insert(table).prefix_with("OR IGNORE"), [row])
                if name in SUMMED:
                    sum_anew(connection, name)
    finally:
        engine.dispose()
    return aside, lost


def drop_damaged(connection: Connection) -> int:
    """Remove measurements and events whose seal does not match, or that cannot be read, and sum up the rest.

    Returns:
        How many were lost, those included that are no longer there.
    """
    lost = 0
    for name in ("measurements", "events"):
        table = Base.metadata.tables[name]
        try:
            checked_rows(connection, name)
        except (TypeError, ValueError):
            keys = list(_keys(connection, table))
            unsound = [key for key in keys if _sound(connection, table, key) is None]
            for key in unsound:
                connection.execute(delete(table).where(table.c.id == key))
            lost += max(len(unsound), _stated(connection, table) - len(keys) + len(unsound))
    return lost


@contextmanager
def repairing(url: str) -> Iterator[None]:
    """Keep other processes from repairing the same SQLite file until the block ends.

    Raises:
        TryAgainError: another process has been repairing it for too long.
        RefusedError: nothing may be written beside the file.
        CannotCreateError: nothing can be.
    """
    address = parse_address(url)
    path = address.path
    if path is None:
        yield
        return
    with creating(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(path.name + ".lock").open("a")
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise RefusedError(f"{address} cannot be written ({error.strerror})", hint=address.folder_step) from error
    with lock:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _locked(lock.fileno()):
            if time.monotonic() > deadline:
                raise TryAgainError(f"{path}: another process is repairing it", hint="run the same command again")
            time.sleep(0.05)
        yield


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rename(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    # The log belongs to the file: left behind, SQLite would replay it into the new one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


@contextmanager
def _damaged(address: Address) -> Iterator[Connection | None]:
    engine = make_engine(address)
    try:
        with ExitStack() as stack:
            source = None
            # A file that is not a database does not even connect.
            with suppress(*_DAMAGE):
                source = stack.enter_context(engine.connect())
            yield source
    finally:
        engine.dispose()


def _readable(source: Connection, table: Table) -> tuple[list[Row], int]:
    checked = _KEPT[table.name]
    rows = []
    for key in list(_keys(source, table)):
        if (row := _sound(source, table, key)) is not None:
            with suppress(*_DAMAGE):
                rows.append(checked(row))
    return rows, max(0, _stated(source, table) - len(rows))


def _sound(connection: Connection, table: Table, key: int) -> Row | None:
    with suppress(*_DAMAGE):
        for row in dicts(connection.execute(select(table).where(table.c.id == key))):
            if "seal" not in row or row["seal"] == seal_of(table.name, row):
                return row
    return None


def _stated(connection: Connection, table: Table) -> int:
    with suppress(*_DAMAGE):
        return stored_sum(connection, table.name).rows
    return 0


def _keys(source: Connection, table: Table) -> Iterator[Any]:
    # Up to the first page that cannot be read; not from an index, which may lack some.
    with suppress(*_DAMAGE):
        ids = select(table.c.id).with_hint(table, "NOT INDEXED", "sqlite").order_by(table.c.id)
        yield from source.execute(ids).scalars()
