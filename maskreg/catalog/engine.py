"""Engines: how a database is opened, and how its transactions begin.

SQLite: see :mod:`maskreg.catalog.file`.

PostgreSQL: pooled connections, a lock timeout, and UTC. What only reads goes without a transaction around it
(:func:`reading`), which saves a request two messages of three; at READ COMMITTED it sees the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from maskreg.catalog.address import Address
from maskreg.catalog.file import connect, writable
from maskreg.disk import make_root
from maskreg.errors import CannotCreateError

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

WRITE = "maskreg_write"
"""Execution option of a connection whose transactions write."""


def make_engine(address: Address) -> Engine:
    """An engine for ``address``; nothing is connected yet."""
    if not address.sqlite:
        return _postgresql(address)
    if address.path is not None:
        try:
            make_root(address.path.parent)
        except OSError as error:
            raise CannotCreateError(f"{address.path.parent}: {error.strerror}") from error
    return _sqlite(address.path)


def reading(engine: Engine) -> Engine:
    """The same engine for what only reads: PostgreSQL gets each statement without a transaction around it."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="AUTOCOMMIT")


# SQLite


def _sqlite(path: Path | None) -> Engine:
    engine = create_engine(
        "sqlite://", creator=lambda: connect(path), poolclass=_pool(path), json_deserializer=_parse_document
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


def _parse_document(stored: str) -> Any:
    try:
        return json.loads(stored)
    except RecursionError as error:
        raise ValueError("a document is nested too deeply") from error


# PostgreSQL


def _postgresql(address: Address) -> Engine:
    # The connection that was used last is used next, so that under load none is idle for long.
    engine = create_engine(
        address.url,
        connect_args=_arguments(address),
        pool_use_lifo=True,
        pool_pre_ping=True,
        skip_autocommit_rollback=True,
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # In another zone a time of year 1 or 9999 would leave Python's calendar. A plan that PostgreSQL keeps for all
        # values takes each word of a search for a rare one, and sorts all that match: 200 ms for a page, not 1 ms.
        # A random page of a catalog in memory or on an SSD does not cost four times one in order: with that, it joins
        # hundreds of thousands of rows that have a word with the rows of a project, rather than read 50 of the project.
        # A bitmap of the rows of a word that one in 40 of millions has does not fit into 4 MB.
        settings = {
            "lock_timeout": f"{LOCK_SECONDS}s",
            "TimeZone": "UTC",
            "plan_cache_mode": "force_custom_plan",
            "random_page_cost": "1.1",
            "work_mem": "32MB",
        }
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
        connection.commit()

    return engine


def _arguments(address: Address) -> dict[str, Any]:
    """What libpq is told besides the URL, which wins."""
    arguments: dict[str, Any] = {"application_name": "maskreg", **SILENCE}
    if "PGCONNECT_TIMEOUT" not in os.environ:
        arguments["connect_timeout"] = CONNECT_SECONDS
    return {name: value for name, value in arguments.items() if name not in address.url.query}
