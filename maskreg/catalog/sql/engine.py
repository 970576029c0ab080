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
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from maskreg.catalog.sql.address import Address
from maskreg.catalog.tables.columns import parse_document
from maskreg.catalog.tables.connecting import connect, make_folder_of
from maskreg.catalog.tables.filesystem import writable

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
        make_folder_of(address.path)
    return _sqlite(address)


def _sqlite(address: Address) -> Engine:
    path = address.path
    engine = create_engine(
        "sqlite://", creator=lambda: connect(path), poolclass=_pool(path), json_deserializer=parse_document
    )

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
