"""The database of a server: its tables, and how it is opened, read and written in transactions.

Only migrations create the tables; they can share a database with a catalog's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Connection, Dialect, Double, ForeignKey, Index, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from maskreg.catalog.engine import check_clock
from maskreg.catalog.models import METADATA, SERIAL, Moment, Words
from maskreg.catalog.schema import Connections, current, installed, refuse_other, upgrade

_LOCK_KEY = 0x6D61736B72656702


class Time(Moment):
    """A point in time, or none."""

    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Restore the time zone, UTC."""
        return None if value is None else super().process_result_value(value, dialect)


class Base(DeclarativeBase):
    """Holds the metadata that migrations are checked against."""

    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        str: Words(),
        int: BigInteger(),
        bool: Boolean(),
        float: Double(),
        datetime: Time(),
        dict[str, Any]: JSON(none_as_null=True),
    }


def _unique_while_live(column: str) -> Index:
    live = text("removed_at IS NULL")
    return Index(f"uq_service_principals_{column}", column, unique=True, sqlite_where=live, postgresql_where=live)


class PrincipalRow(Base):
    """A user or robot. Ids are never reused: an account that comes back under an old name has another one.

    Attributes:
        identity: issuer and subject of an OpenID provider, for a person who signed in; NULL for the others.
    """

    __tablename__ = "service_principals"
    __table_args__ = (_unique_while_live("name"), _unique_while_live("identity"))

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    identity: Mapped[str | None]
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]


class ProjectRow(Base):
    """A project. One that was deleted keeps its row, so that its name is not taken by accident."""

    __tablename__ = "service_projects"

    name: Mapped[str] = mapped_column(primary_key=True)
    public: Mapped[bool]
    max_bytes: Mapped[int | None]
    max_artifacts: Mapped[int | None]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    deleted_at: Mapped[datetime | None]


class GrantRow(Base):
    """The role of a principal in a project, or in all (``*``)."""

    __tablename__ = "service_grants"

    principal: Mapped[str] = mapped_column(ForeignKey("service_principals.id"), primary_key=True)
    project: Mapped[str] = mapped_column(primary_key=True, index=True)
    role: Mapped[int]
    at: Mapped[datetime]
    by: Mapped[str]


class TokenRow(Base):
    """A token. It has the rights of its principal, at most ``role``, and in ``project`` only unless that is ``*``.

    Attributes:
        id: the part of the token that is no secret.
        secret: sha256 of the part that is, as hex digits.
        used_at: when it was last shown, to the minute.
    """

    __tablename__ = "service_tokens"

    id: Mapped[str] = mapped_column(primary_key=True)
    secret: Mapped[str]
    principal: Mapped[str] = mapped_column(ForeignKey("service_principals.id"), index=True)
    project: Mapped[str] = mapped_column(index=True)
    role: Mapped[int]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]


class SessionRow(Base):
    """A browser that is signed in.

    Attributes:
        id: sha256 of the cookie, as hex digits.
        token: the token that it was signed in with, whose limits it has; NULL for an OpenID provider.
    """

    __tablename__ = "service_sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    principal: Mapped[str] = mapped_column(ForeignKey("service_principals.id"), index=True)
    token: Mapped[str | None] = mapped_column(ForeignKey("service_tokens.id"), index=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class AuditRow(Base):
    """One change; rows are never changed. The token is empty for a session, the project for the server as a whole."""

    __tablename__ = "service_audit"

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    by: Mapped[str] = mapped_column(index=True)
    token: Mapped[str]
    action: Mapped[str]
    project: Mapped[str] = mapped_column(index=True)
    subject: Mapped[str]
    detail: Mapped[dict[str, Any]]


class ChoreRow(Base):
    """Work that one process of all servers does now and then.

    Attributes:
        due: when it can be claimed next, in seconds since 1970 by the database's clock.
    """

    __tablename__ = "service_chores"

    name: Mapped[str] = mapped_column(primary_key=True)
    due: Mapped[float]


class CheckRow(Base):
    """An artifact that waits to be verified; ``at`` is in seconds since 1970 by the database's clock."""

    __tablename__ = "service_checks"

    digest: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    by: Mapped[str]


class JobRow(Base):
    """One job; see :class:`maskreg.service.jobs.queue.Job`. Times are in seconds since 1970 by the database's clock.

    Attributes:
        worker: who works on it; empty while it waits.
        beat: when its worker last said that it works on it.
        log: the last lines of its attempts.
    """

    __tablename__ = "service_jobs"
    __table_args__ = (Index("ix_service_jobs_project_number", "project", "number"),)

    number: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    project: Mapped[str]
    by: Mapped[str]
    output: Mapped[str]
    request: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(index=True)
    phase: Mapped[str]
    done: Mapped[int]
    total: Mapped[int]
    log: Mapped[str]
    attempt: Mapped[int]
    created: Mapped[float]
    started: Mapped[float | None]
    finished: Mapped[float | None]
    canceled_by: Mapped[str]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    worker: Mapped[str]
    beat: Mapped[float]


class Database(Connections):
    """The service's own tables. Safe to use from many threads; several processes and servers can share them.

    Attributes:
        clock: gives the seconds since 1970 by this machine's clock.
    """

    metadata = Base.metadata
    clock: Callable[[], float] = staticmethod(time.time)

    def check(self) -> None:
        """Check that the database answers, has this version's schema, and agrees with this machine about the time."""
        with self.read() as connection:
            check_clock(connection, self._address, self.clock())
            refuse_other(self._address, installed(connection, Base.metadata))

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes. One writes at a time, so that what it read is still so when it writes."""
        with super().write() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            yield connection


class Tables:
    """Base of classes that read and write tables of one database; safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database


def upgrade_server(url: str) -> tuple[str | None, str | None]:
    """Bring a server's database, catalog included, to this version's schema; its revisions before and after."""
    before = current(url)
    upgrade(url, METADATA, Base.metadata)
    return before, current(url)


def upgrade_own(url: str) -> None:
    """Bring the server's own tables to this version's schema, where a database has them."""
    if current(url, Base.metadata) is not None:
        upgrade(url, Base.metadata)
