"""Engines: how a connection is opened and how its transactions begin.

SQLite, for one machine with several processes:

* WAL on local disks: readers see the last commit while one process writes, and nobody waits to read.
* ``BEGIN IMMEDIATE`` for a transaction that will write. With the default (deferred) BEGIN, a transaction that reads
  first and writes later fails at once with SQLITE_BUSY when another process committed in between, whatever the
  timeout; one that takes the write lock first waits its turn::

      A: BEGIN; SELECT n        B: BEGIN IMMEDIATE; UPDATE n; COMMIT        A: UPDATE n -> SQLITE_BUSY_SNAPSHOT
      A: BEGIN IMMEDIATE        B: BEGIN IMMEDIATE waits                    A: UPDATE n; COMMIT; B goes on

* ``BEGIN DEFERRED`` for reading: one consistent snapshot, no lock.

PostgreSQL: pooled connections, a lock timeout, and UTC.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from maskreg.catalog.sql.address import Address
from maskreg.catalog.sql.filesystem import journal_mode, sqlite_uri, writable
from maskreg.disk import make_root, new_file
from maskreg.errors import CannotCreateError

BUSY_SECONDS = 10.0
"""How long a SQLite connection waits for another's write transaction."""

LOCK_SECONDS = 30
"""How long PostgreSQL waits for another's lock."""

CONNECT_SECONDS = 10
"""How long a PostgreSQL server may take to answer."""

WRITE = "maskreg_write"
"""Execution option of a connection whose transactions write."""


def make_engine(address: Address) -> Engine:
    """An engine for ``address``; nothing is connected yet.

    Raises:
        CannotCreateError: the directory of a SQLite file does not exist and cannot be created.
    """
    if not address.sqlite:
        return _postgresql(address)
    if address.path is not None:
        try:
            make_root(address.path.parent)
        except OSError as error:
            raise CannotCreateError(f"{address.path.parent}: {error.strerror}") from error
    return _sqlite(address)


def _sqlite(address: Address) -> Engine:
    path = address.path

    def connect() -> sqlite3.Connection:
        name = ":memory:" if path is None else sqlite_uri(path)
        if path is not None and not path.exists():
            # SQLite would follow the umask alone; it takes an empty file for a new database.
            with suppress(OSError):
                new_file(path).close()
        # isolation_level=None: the driver would begin transactions itself, deferred and only at the first write.
        connection = sqlite3.connect(
            name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        if path is not None and writable(path):
            try:
                _set_journal(connection, journal_mode(path))
            except sqlite3.Error:
                connection.close()
                raise
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=_pool(path))

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")

    return engine


def _pool(path: Path | None) -> type[Pool]:
    if path is None:
        return StaticPool  # the database is gone when its one connection closes
    # How a read-only file is opened depends on whether another process is writing it: decided for each connection.
    return QueuePool if writable(path) else NullPool


def _set_journal(connection: sqlite3.Connection, mode: str) -> None:
    # Changing the mode needs exclusive access, and SQLite does not apply its busy timeout to that.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # Only when it differs: opening must not need exclusive access.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
                connection.execute(f"PRAGMA journal_mode={mode}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _postgresql(address: Address) -> Engine:
    arguments: dict[str, Any] = {"application_name": "maskreg"}
    if "connect_timeout" not in address.url.query and "PGCONNECT_TIMEOUT" not in os.environ:
        arguments["connect_timeout"] = CONNECT_SECONDS
    # A pooled connection may have died since its last use: pre_ping notices and replaces it.
    engine = create_engine(address.url, connect_args=arguments, pool_pre_ping=True)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # In another zone a time of year 1 or 9999 would leave Python's calendar.
        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'; SET TIME ZONE 'UTC'")
        connection.commit()

    return engine
