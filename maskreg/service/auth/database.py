"""The database of accounts: opened, refused when its schema is behind, read and written in transactions."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text

from maskreg.catalog.address import Address, parse_address
from maskreg.catalog.clock import check_clock
from maskreg.catalog.engine import WRITE, make_engine, reading
from maskreg.catalog.faults import readable_rows, translated
from maskreg.catalog.schema import ensure, installed, refuse_other
from maskreg.service.auth.models import Base

_LOCK_KEY = 0x6D61736B72656702


class Database:
    """The service's own tables. Safe to use from many threads; several processes and servers can share them.

    Attributes:
        clock: gives the seconds since 1970 by this machine's clock.
    """

    def __init__(self, address: Address, engine: Engine) -> None:
        """Use :meth:`open`."""
        self.clock: Callable[[], float] = time.time
        self._address = address
        self._engine = engine
        self._read_engine = reading(engine)
        self._write_engine = engine.execution_options(**{WRITE: True})
        self.close = weakref.finalize(self, engine.dispose)

    @classmethod
    def open(cls, url: str) -> Database:
        """Open the database; a SQLite file gets the tables of this version.

        Args:
            url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/DATABASE``.
        """
        address = parse_address(url)
        database = cls(address, make_engine(address))
        try:
            ensure(address, database._engine, Base.metadata)
        except BaseException:
            database.close()
            raise
        return database

    def check(self) -> None:
        """Check that the database answers, has this version's schema, and agrees with this machine about the time."""
        with self.read() as connection:
            check_clock(connection, self._address, self.clock())
            refuse_other(self._address, installed(connection, Base.metadata))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that only reads; see :func:`maskreg.catalog.engine.reading`."""
        with translated(self._address), readable_rows(self._address), self._read_engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes. One writes at a time, so that what it read is still so when it writes."""
        with translated(self._address), readable_rows(self._address), self._write_engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            yield connection
