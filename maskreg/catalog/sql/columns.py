"""Column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from maskreg.catalog.tables.columns import clean

SERIAL = BigInteger().with_variant(Integer(), "sqlite")
"""A primary key that numbers rows as they are inserted (SQLite does so for INTEGER keys only)."""


class Words(TypeDecorator[str]):
    """Text that compares and sorts byte by byte, whatever the locale of the server."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """SQLite compares bytes by default; PostgreSQL needs collation C."""
        return Text(collation="C") if dialect.name == "postgresql" else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace what one of the databases cannot store."""
        return None if value is None else clean(value)


class Moment(TypeDecorator[datetime]):
    """A point in time: aware and in UTC on both sides; SQLite stores it naive, PostgreSQL with a time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC.

        Raises:
            ValueError: ``value`` has no time zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Restore the time zone, UTC.

        Raises:
            ValueError: the value is NULL; no column of times allows that.
        """
        if value is None:
            raise ValueError("a time is missing")
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
