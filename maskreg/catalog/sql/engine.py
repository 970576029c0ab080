"""Engines: how a connection is opened and how its transactions begin.

SQLite, for one machine with several processes:

* WAL on local disks: readers see the last commit while one process writes, and nobody waits to read.
* ``BEGIN IMMEDIATE`` for a transaction that will write. With the default (deferred) BEGIN, a transaction that reads
  first and writes later fails at once with SQLITE_BUSY when another process committed in between, whatever the
  timeout; one that takes the write lock first waits its turn::

      A: BEGIN; SELECT n        B: BEGIN IMMEDIATE; UPDATE n; COMMIT        A: UPDATE n -> SQLITE_BUSY_SNAPSHOT
      A: BEGIN IMMEDIATE        B: BEGIN IMMEDIATE waits                    A: UPDATE n; COMMIT; B goes on

* ``BEGIN DEFERRED`` for reading: one consistent snapshot, no lock.

PostgreSQL: pooled connections, a lock timeout, and UTC. What a request costs there is mostly messages back and forth::

    a transaction       BEGIN, SELECT, ROLLBACK                3 messages
    :func:`reading`     SELECT, a transaction by itself        1 message

Reading several statements one after another sees what others commit in between, in a transaction as well: its isolation
is READ COMMITTED. So nothing is lost.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from maskreg.catalog.sql.address import Address
from maskreg.catalog.tables.columns import parse_document
from maskreg.catalog.tables.connecting import connect, make_folder_of
from maskreg.catalog.tables.filesystem import writable

LOCK_SECONDS = 30
"""How long PostgreSQL waits for another's lock."""

CONNECT_SECONDS = 10
"""How long a PostgreSQL server may take to answer."""

SILENCE: Mapping[str, int] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""How libpq gives up a server whose machine or network is gone: a minute after it was last heard of.

The first three, in seconds, end a wait for an answer; a busy server's kernel still answers the probes. The last, in
milliseconds and on Linux alone, ends a wait for the receipt of what was sent.
"""

_IDLE_SECONDS = 1.0
"""After how long without use a connection to PostgreSQL is tried before it is used again."""

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


def reading(engine: Engine) -> Engine:
    """The same engine for what only reads: PostgreSQL gets each statement without a transaction around it."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="AUTOCOMMIT")


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
    # The connection that was used last is used next, so that under load none is idle for long.
    engine = create_engine(
        address.url, connect_args=_arguments(address), pool_use_lifo=True, skip_autocommit_rollback=True
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # In another zone a time of year 1 or 9999 would leave Python's calendar. A plan that PostgreSQL keeps for all
        # values takes each word of a search for a rare one, and sorts all that match: 200 ms for a page, not 1 ms.
        # A random page of a catalog in memory or on an SSD does not cost four times one in order: with that, it joins
        # hundreds of thousands of rows that have a word with those of a project, rather than read 50 of the project.
        # A bitmap of the rows of a word that one in 40 of millions has does not fit into 4 MB; it would name pages, of
        # which each row is compared anew.
        settings = {
            "lock_timeout": f"{LOCK_SECONDS}s",
            "TimeZone": "UTC",
            "plan_cache_mode": "force_custom_plan",
            "random_page_cost": "1.1",
            "work_mem": "32MB",
        }
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
        connection.commit()

    @event.listens_for(engine, "checkin")
    def _returned(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _taken(connection: Any, record: Any, _proxy: Any) -> None:
        try:
            if _may_have_died(connection, record.info.get("used")):
                engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            # The pool replaces it.
            raise DisconnectionError(str(error)) from error

    return engine


def _arguments(address: Address) -> dict[str, Any]:
    """What libpq is told besides the URL, which wins."""
    arguments: dict[str, Any] = {"application_name": "maskreg", **SILENCE}
    if "PGCONNECT_TIMEOUT" not in os.environ:
        arguments["connect_timeout"] = CONNECT_SECONDS
    return {name: value for name, value in arguments.items() if name not in address.url.query}


def _may_have_died(connection: Any, used: float | None) -> bool:
    # A server that ends a connection says so, or the network does: then there is something to read. Asking the server
    # each time would cost as much as the statement that follows; it is asked where nothing was heard for a while.
    if used is None:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0)) or time.monotonic() - used > _IDLE_SECONDS
