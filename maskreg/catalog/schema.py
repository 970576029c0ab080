"""The schema of a database: its revision, and how it gets this version's.

There is one chain of revisions, ``migrations/versions``, for all tables: a catalog's, a server's accounts and its jobs.
A database holds the tables of one or several of them, and one number::

    no number             make the tables as the models say, and write the latest revision's number
    an older number       run the revisions after it, each on the tables that are there
    the latest, but a group of tables is missing         make those: a server's beside a catalog's
    another number        refuse: this version does not know it
"""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Self

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select, text

from maskreg.catalog.engine import WRITE, Address, make_engine, parse_address, reading
from maskreg.catalog.faults import translated
from maskreg.catalog.file import HEAD, REVISIONS, VERSION_TABLE, writable
from maskreg.catalog.models import METADATA
from maskreg.closing import Closing
from maskreg.errors import ConfigError, CorruptError
from maskreg.extras import upgrade_command

VERSION = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
"""Holds the number."""

_LOCK_KEY = 0x6D61736B72656701
_alembic_is_global = threading.Lock()


def upgrade(url: str, *groups: MetaData) -> None:
    """Bring a database to this version's schema."""
    address = parse_address(url)
    engine = make_engine(address)
    try:
        for tables in groups or (METADATA,):
            _bring_up(address, engine, tables)
    finally:
        engine.dispose()


def current(url: str, tables: MetaData = METADATA) -> str | None:
    """The revision that a group of tables has; None where a database does not have them yet."""
    address = parse_address(url)
    if address.path is not None and not address.path.exists():
        return None  # asking must not create the file
    engine = make_engine(address)
    try:
        with translated(address), engine.connect() as connection:
            return installed(connection, tables)
    finally:
        engine.dispose()


def installed(connection: Connection, tables: MetaData = METADATA) -> str | None:
    """The revision that a group of tables has in ``connection``'s database; None where it does not have them."""
    there = inspect(connection)
    if not there.has_table(VERSION.name):
        return None
    rows = "+".join(sorted(connection.execute(select(VERSION.c.version_num)).scalars()))
    # Any of them will do: one that is missing alone is damage.
    return (rows or None) if any(there.has_table(name) for name in tables.tables) else None


def ensure(address: Address, engine: Engine, tables: MetaData = METADATA) -> None:
    """Open a group of tables: a SQLite file gets them; a database that several share is upgraded by its operator."""
    with translated(address), engine.connect() as connection:
        revision = installed(connection, tables)
    if address.sqlite and revision in (None, *REVISIONS[:-1]) and (address.path is None or writable(address.path)):
        _bring_up(address, engine, tables)
    else:
        refuse_other(address, revision)


def refuse_other(address: Address, revision: str | None) -> None:
    """Refuse any revision but this version's own."""
    if revision is not None and revision not in REVISIONS:
        raise ConfigError(
            f"{address} has schema {revision}; this version knows none newer than {HEAD}", hint=upgrade_command()
        )
    if revision != HEAD:
        has = f"has schema {revision}" if revision else "has no schema yet"
        raise ConfigError(f"{address} {has}; this version needs {HEAD}", catalog_behind=True)


def _bring_up(address: Address, engine: Engine, tables: MetaData) -> None:
    # One transaction around reading the number and changing it serializes processes: the second finds nothing to do.
    with translated(address), engine.execution_options(**{WRITE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        there = set(inspect(connection).get_table_names())
        revision = installed(connection, VERSION.metadata)
        if revision is not None and revision not in REVISIONS:
            refuse_other(address, revision)
        missing = set(tables.tables) - there
        if revision is None and missing != set(tables.tables):
            if VERSION.name in there:
                raise _damaged(address, tables, "the number of its schema is missing")
            raise ConfigError(
                f"{address} has tables of the same names but no maskreg schema: "
                f"{', '.join(sorted(set(tables.tables) & there))}",
                hint="use a database that holds nothing else",
            )
        if revision not in (None, HEAD):
            migrate(connection, tables)
        elif missing == set(tables.tables):
            tables.create_all(connection)
        elif missing:
            raise _damaged(address, tables, f"tables are missing: {', '.join(sorted(missing))}")
        if revision is None:
            VERSION.create(connection, checkfirst=True)
            connection.execute(VERSION.insert().values(version_num=HEAD))


def _damaged(address: Address, tables: MetaData, fault: str) -> CorruptError:
    # Accounts and jobs are nowhere else; a catalog is made again from the store.
    if tables is METADATA:
        return CorruptError(str(address), fault, catalog_damaged=True)
    return CorruptError(str(address), fault, hint="restore the database from a backup")


def migrate(connection: Connection, *groups: MetaData) -> None:
    """Run the revisions that a database lacks, in the transaction of ``connection``."""
    from alembic import command
    from alembic.config import Config

    # Alembic's context is global to the process: threads take turns.
    with _alembic_is_global:
        config = Config(stdout=io.StringIO())
        config.set_main_option("script_location", str(files("maskreg_migrations")).replace("%", "%%"))
        config.set_main_option("path_separator", "newline")
        config.attributes |= {"connection": connection, "metadata": groups, "version_table": VERSION.name}
        command.upgrade(config, HEAD)


class Connections(Closing):
    """Connections to one database; safe to use from many threads, except one in memory."""

    metadata = METADATA
    """The tables that a SQLite file gets when it is opened, in the schema of this version."""

    def __init__(self, address: Address, engine: Engine) -> None:
        """Use :meth:`open`."""
        self._address = address
        self._read_engine = reading(engine)
        self._write_engine = engine.execution_options(**{WRITE: True})
        # Even when close is never called, and before the interpreter shuts down.
        self._close = weakref.finalize(self, engine.dispose)

    @classmethod
    def open(cls, url: str) -> Self:
        """Open ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/DATABASE``."""
        address = parse_address(url)
        engine = make_engine(address)
        database = cls(address, engine)
        try:
            ensure(address, engine, cls.metadata)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Close every connection."""
        self._close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that only reads; see :func:`maskreg.catalog.engine.reading`."""
        with translated(self._address), self._read_engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes."""
        with translated(self._address), self._write_engine.begin() as connection:
            yield connection
