"""Engines: how a database is opened, and how its transactions begin.

SQLite: see :mod:`maskreg.catalog.file`.

PostgreSQL: pooled connections, a lock timeout, and UTC. What only reads goes without a transaction around it
(:func:`reading`), which saves a request two messages of three; at READ COMMITTED it sees the same.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from maskreg.catalog.file import connect, writable
from maskreg.disk import make_root
from maskreg.errors import CannotCreateError, ConfigError
from maskreg.settings.remotes import check_catalog

LOCK_SECONDS = 30
"""How long PostgreSQL waits for another's lock."""

CONNECT_SECONDS = 10
"""How long a PostgreSQL server can take to answer."""

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
    engine = create_engine("sqlite://", creator=lambda: connect(path), json_deserializer=_parse_document, **_pool(path))

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")

    return engine


def _pool(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {"poolclass": StaticPool}  # the database is gone when its one connection closes
    # How a read-only file is opened depends on whether another process is writing it: decided for each connection.
    if not writable(path):
        return {"poolclass": NullPool}
    # As many as by default, but all are kept: a burst of requests would open and close them again and again.
    return {"poolclass": QueuePool, "pool_size": 15, "max_overflow": 0}


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


_KINDS = "sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Address:
    """Where a catalog's database is."""

    url: URL
    path: Path | None = None

    @property
    def sqlite(self) -> bool:
        """Whether it is SQLite (a file, or in memory)."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def folder_step(self) -> str:
        """A hint about a SQLite file that cannot be written; empty without a file."""
        return f"ls -ld {self.path.parent}" if self.path else ""

    @property
    def space_step(self) -> str:
        """A hint about a full disk; empty without a file."""
        return f"df -h {shlex.quote(str(self.path.parent))}" if self.path else ""

    @property
    def ready_step(self) -> str:
        """A hint about a server that does not answer."""
        return shlex.join(["pg_isready", *self._server])

    @property
    def create_step(self) -> str:
        """A hint about a database that does not exist."""
        return shlex.join(["createdb", *self._server, self.url.database or ""])

    @property
    def grant_step(self) -> str:
        """A hint about a role that lacks rights in the database."""
        role = (self.url.username or "ROLE").replace('"', '""')
        grants = " ".join(
            f'GRANT ALL ON {objects} public TO "{role}";'
            for objects in ("SCHEMA", "ALL TABLES IN SCHEMA", "ALL SEQUENCES IN SCHEMA")
        )
        return "as its owner: " + shlex.join(["psql", *self._server, "-d", self.url.database or "", "-c", grants])

    @property
    def _server(self) -> list[str]:
        host = ["-h", self.url.host] if self.url.host else []
        return [*host, "-p", str(self.url.port)] if self.url.port else host

    def __str__(self) -> str:
        """For messages."""
        return str(self.path) if self.path else self.url.set(query={}).render_as_string()


def parse_address(url: str) -> Address:
    """Check a database URL.

    A SQLite path is everything behind ``sqlite:///``, verbatim: ``%20``, ``?`` and ``#`` are part of the name.
    """
    if url in ("sqlite://", "sqlite:///:memory:"):
        return Address(make_url("sqlite://"))
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///")).absolute()
        return Address(URL.create("sqlite", database=str(path)), path)
    return Address(_server_url(url))


def _server_url(url: str) -> URL:
    if "://" not in url or not url.startswith("postgresql"):
        raise ConfigError("the catalog's URL names no supported database", hint=f"write {_KINDS}")
    check_catalog(url, "the catalog")
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # Not chained: the text that could not be parsed can hold a password.
        raise ConfigError("the catalog's URL is malformed", hint=f"write {_KINDS}") from None


MAX_SKEW_S = 300.0
"""How far a machine's clock can be from the clock of its database, in seconds."""


def now(connection: Connection) -> float:
    """Seconds since 1970. Machines share a PostgreSQL, and with it its clock; a SQLite file is on one machine."""
    if connection.dialect.name == "postgresql":
        return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


def check_clock(connection: Connection, address: Address, own: float) -> None:
    """Refuse a machine whose clock is far from the database's.

    Its times would mean something else to other machines: tokens would expire years early, or never.
    """
    ahead_s = own - now(connection)
    if abs(ahead_s) > MAX_SKEW_S:
        raise ConfigError(
            f"the clock of this machine is {abs(ahead_s):,.0f} seconds {'ahead of' if ahead_s > 0 else 'behind'} "
            f"the clock of {address}",
            hint="timedatectl",
        )
