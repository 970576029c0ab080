"""Engines: how a connection is opened and how its transactions begin."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from maskreg.catalog.address import Address
from maskreg.catalog.filesystem import journal_mode, sqlite_uri, writable
from maskreg.errors import CannotCreateError

BUSY_SECONDS = 10.0
"""How long a SQLite connection waits for somebody else's transaction."""

LOCK_SECONDS = 30
"""How long PostgreSQL waits for somebody else's lock."""

CONNECT_SECONDS = 10
"""How long a PostgreSQL server may take to answer."""

WRITE = "maskreg_write"
"""Execution option of a connection that is going to write."""


def make_engine(address: Address) -> Engine:
    """An engine for ``address``; nothing is connected yet.

    Raises:
        CannotCreateError: the directory of a SQLite file is not there and cannot be made.
    """
    if not address.sqlite:
        return _postgresql(address)
    if address.path is not None:
        try:
            address.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotCreateError(f"{address.path.parent}: {error.strerror}") from error
    return _sqlite(address)


def _sqlite(address: Address) -> Engine:
    path = address.path

    def connect() -> sqlite3.Connection:
        name = ":memory:" if path is None else sqlite_uri(path)
        # isolation_level=None: the driver must not begin transactions, because it begins them too late.
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
        # A transaction that reads first and writes later fails when somebody else wrote in between;
        # one that takes the write lock at once waits its turn instead. Readers need no lock.
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")

    return engine


def _pool(path: Path | None) -> type[Pool]:
    if path is None:
        return StaticPool  # the database lives and dies with its one connection
    # How a file is opened to read only depends on who else has it open: decided anew each time.
    return QueuePool if writable(path) else NullPool


def _set_journal(connection: sqlite3.Connection, mode: str) -> None:
    # Changing the journal needs the file alone, and SQLite does not wait for that as it does for a lock.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # Asking first: an open that changes nothing must not need the file alone.
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
        # In another zone the first and the last year would leave Python's calendar.
        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'; SET TIME ZONE 'UTC'")
        connection.commit()

    return engine
