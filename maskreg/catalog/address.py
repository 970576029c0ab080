"""The URL of a catalog's database, checked: SQLite or PostgreSQL, and no password."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from maskreg.errors import ConfigError
from maskreg.settings.urls import check_catalog

_KINDS = "sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Address:
    """Where a catalog's database is.

    Attributes:
        url: for SQLAlchemy; without a password.
        path: the absolute path of a SQLite file; None in memory and for PostgreSQL.
    """

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
    return Address(_postgresql(url))


def _postgresql(url: str) -> URL:
    if "://" not in url or not url.startswith("postgresql"):
        raise ConfigError("the catalog's URL names no supported database", hint=f"write {_KINDS}")
    check_catalog(url, "the catalog")
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # Not chained: the text that could not be parsed may hold a password.
        raise ConfigError("the catalog's URL is malformed", hint=f"write {_KINDS}") from None
