"""The tables, as SQLAlchemy models. Only migrations create them; they can share a database with a catalog's."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Dialect, Double, ForeignKey, Index, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from maskreg.catalog.models import SERIAL, Moment, Words


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
        datetime: Moment(),
        dict[str, Any]: JSON(),
    }


class PrincipalRow(Base):
    """A user or robot. Ids are never reused: an account that comes back under an old name has another one.

    Attributes:
        identity: issuer and subject of an OpenID provider, for a person who signed in; NULL for the others.
    """

    __tablename__ = "service_principals"
    __table_args__ = (
        Index(
            "uq_service_principals_name",
            "name",
            unique=True,
            sqlite_where=text("removed_at IS NULL"),
            postgresql_where=text("removed_at IS NULL"),
        ),
        Index(
            "uq_service_principals_identity",
            "identity",
            unique=True,
            sqlite_where=text("removed_at IS NULL"),
            postgresql_where=text("removed_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    identity: Mapped[str | None]
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None] = mapped_column(Time())


class ProjectRow(Base):
    """A project. One that was deleted keeps its row, so that its name is not taken by accident."""

    __tablename__ = "service_projects"

    name: Mapped[str] = mapped_column(primary_key=True)
    public: Mapped[bool]
    max_bytes: Mapped[int | None]
    max_artifacts: Mapped[int | None]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    deleted_at: Mapped[datetime | None] = mapped_column(Time())


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
    expires_at: Mapped[datetime | None] = mapped_column(Time())
    revoked_at: Mapped[datetime | None] = mapped_column(Time())
    used_at: Mapped[datetime | None] = mapped_column(Time())


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
    """One change; rows are never changed.

    Attributes:
        token: id of the token that was shown; empty for a session.
        project: where; empty for the server as a whole.
    """

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
        holder: the process that does it now; empty for none.
    """

    __tablename__ = "service_chores"

    name: Mapped[str] = mapped_column(primary_key=True)
    due: Mapped[float]
    holder: Mapped[str]


class CheckRow(Base):
    """An artifact that waits to be verified; the row goes when that was done.

    Attributes:
        at: when that was requested, in seconds since 1970 by the database's clock.
    """

    __tablename__ = "service_checks"

    digest: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(index=True)
    by: Mapped[str]
