"""The tables of a catalog, and column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

from maskreg.catalog.query import COLUMNS, RANGE_KEYS
from maskreg.catalog.rows import clean
from maskreg.digest import Digest

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A primary key that numbers rows as they are inserted (SQLite does so for INTEGER keys only)."""


class Words(TypeDecorator[str]):
    """Text that compares and sorts byte by byte under any locale of the server."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[str]:
        """SQLite compares bytes by default; PostgreSQL needs collation C."""
        return sa.Text(collation="C") if dialect.name == "postgresql" else sa.Text()

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Replace what one of the databases cannot store."""
        return None if value is None else clean(value)


class Moment(TypeDecorator[datetime]):
    """A point in time: aware and in UTC on both sides; SQLite stores it naive, PostgreSQL with a time zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC; a time without a zone is a ``ValueError``."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Restore the time zone; NULL is a ``ValueError``, since no column of this type allows it."""
        if value is None:
            raise ValueError("a time is missing")
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


TYPES: dict[type, TypeEngine[Any]] = {
    str: Words(),
    Digest: Words(),
    int: sa.BigInteger(),
    float: sa.Double(),
    bool: sa.Boolean(),
    datetime: Moment(),
}
"""How a value is stored, by its type in Python."""

METADATA = sa.MetaData()
"""Every table of a catalog."""


def _column(name: str, kind: TypeEngine[Any], *, key: bool = False, null: bool = False, index: bool = False) -> Any:
    return sa.Column(name, kind, primary_key=key, nullable=null, index=index)


def columns_in(table: str, *, keys: tuple[str, ...]) -> list[Any]:
    """The columns that the table of columns (:class:`maskreg.catalog.query.SearchResult`) puts into ``table``."""
    return [
        _column(
            column.name,
            TYPES[column.type],
            key=column.name in keys,
            null=column.nullable,
            index=column.by not in ("", "pin") and column.name != "project",
        )
        for column in COLUMNS.values()
        if column.table == table
    ]


WORD_LEXEMES = "array_to_tsvector(string_to_array(substr(words, 2), E'\\n'))"
"""One lexeme for each word: what PostgreSQL indexes, which uses an index for nothing but its own expression."""

_W = Words()

# Facts of one artifact's manifest, and its recorded overlap; rebuilt from the store.
ARTIFACTS = sa.Table(
    "artifacts",
    METADATA,
    *columns_in("artifacts", keys=("digest",)),
    sa.Index("ix_artifacts_source_root", "source_root"),
)

# The newest entry of one tag's log, with its card; rebuilt from the store.
REFS = sa.Table(
    "refs",
    METADATA,
    *columns_in("refs", keys=("project", "name", "tag")),
    _column("n", sa.BigInteger()),  # number of the newest entry of the tag's log
    _column("digest", _W, null=True, index=True),  # NULL when the tag is removed
    _column("deleted", sa.Boolean()),
    _column("words", _W),  # see maskreg.catalog.rows
    sa.Index("ix_refs_project_at", "project", "at"),
    sa.Index("ix_refs_at_project", "at", "project"),  # of several projects: in order, without a look at each row
)

# One row: which store the index was filled from, written in the same transaction.
FILLED = sa.Table(
    "filled",
    METADATA,
    _column("source", _W, key=True),  # uuid of the store's registry; empty while that has none
    _column("at", Moment()),
)

# Numbers that were measured on artifacts. Kept nowhere else.
MEASUREMENTS = sa.Table(
    "measurements",
    METADATA,
    _column("id", SERIAL, key=True),
    _column("digest", _W),
    _column("metric", _W, index=True),
    _column("against", _W),
    _column("by_group", _W),
    _column("value", sa.Double()),
    _column("detail", sa.JSON()),
    _column("at", Moment()),
    _column("by", _W),
    sa.Index("ix_measurements_digest_metric", "digest", "metric"),
    sa.Index("ix_measurements_against", "against"),
)

# The append-only audit log. Kept nowhere else.
EVENTS = sa.Table(
    "events",
    METADATA,
    _column("id", SERIAL, key=True),
    _column("at", Moment(), index=True),
    _column("by", _W, index=True),
    _column("action", _W, index=True),
    _column("subject", _W, index=True),
    _column("detail", sa.JSON()),
)

# Paths where this machine saw a checkpoint of a given identity. Kept nowhere else.
SEEN_SOURCES = sa.Table(
    "seen_sources",
    METADATA,
    _column("id", SERIAL, key=True),
    _column("root", _W),
    _column("path", _W),
    _column("at", Moment()),
    sa.UniqueConstraint("root", "path", name="uq_seen_sources_root_path"),
)

# In words, so that a SQLite file does not import the dialect of PostgreSQL, which takes .1 CPU seconds. New rows are
# indexed at once (fastupdate): each search would read a pending list. Of a hundred ranges, the last can hold a thousand
# times as many rows as match; PostgreSQL takes a word that is not among the few hundred most common ones for one in a
# thousand; and from a sample of the names few artifacts seem to have many each. By any of these the planner reads all
# names for the rows of a few artifacts: 3.8 s of 1,000,000.
for _table, _statements in {
    ARTIFACTS: [f"ALTER TABLE artifacts ALTER {key} SET STATISTICS 1000" for key in RANGE_KEYS],
    REFS: [
        f"CREATE INDEX ix_refs_words ON refs USING gin ({WORD_LEXEMES}) WITH (fastupdate = off)",
        "ALTER INDEX ix_refs_words ALTER 1 SET STATISTICS 1000",
        "ALTER TABLE refs ALTER digest SET (n_distinct = -0.5)",
    ],
}.items():
    for _statement in _statements:
        sa.event.listen(_table, "after_create", sa.DDL(_statement).execute_if(dialect="postgresql"))  # type: ignore[no-untyped-call]
