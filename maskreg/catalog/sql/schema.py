"""The schema of a database: which revision it has, and how to migrate it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, MetaData, inspect, text

from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.faults import translated
from maskreg.catalog.sql.models import Base
from maskreg.catalog.tables.columns import REVISIONS, VERSION_TABLE
from maskreg.errors import ConfigError, CorruptError, UsageError
from maskreg.extras import upgrade_command

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK_KEY = 0x6D61736B72656701
_alembic_is_global = threading.Lock()


@dataclass(frozen=True)
class Schema:
    """Tables that belong together, and the revisions that make them. Several may share a database.

    Attributes:
        metadata: the tables, as their models have them.
        revisions: every revision that this version knows, oldest first.
        version_table: holds the revision of a database.
        folder: where the revisions are, in the package of migrations.
        since: the revision that added a table; the others exist since the first.
        mend: hint and facts of the error where tables are missing.
    """

    metadata: MetaData
    revisions: tuple[str, ...]
    version_table: str
    folder: str
    since: Mapping[str, str] = field(default_factory=dict)
    mend: Mapping[str, Any] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """The revision that this version works with."""
        return self.revisions[-1]


CATALOG = Schema(
    Base.metadata, REVISIONS, VERSION_TABLE, "versions", {"filled": "0003", "sums": "0005"}, {"catalog_damaged": True}
)
"""The tables of a catalog."""


def upgrade(url: str, schema: Schema = CATALOG) -> None:
    """Migrate a database to this version's schema; an empty one gets all tables.

    Raises:
        ConfigError: its schema is newer than this version, or its tables belong to another application.
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    with _engine(url) as (address, engine):
        bring_up(address, engine, schema)


def downgrade(url: str, revision: str, schema: Schema = CATALOG) -> None:
    """Migrate a database back to an older revision, or to ``base``: no tables at all.

    Raises:
        UsageError: an unknown revision, or one newer than the database has.
        ConfigError: its schema is newer than this version.
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    if revision not in ("base", *schema.revisions):
        known = ", ".join(("base", *schema.revisions))
        raise UsageError(f"there is no schema revision {revision!r}", hint=f"one of: {known}")
    with _engine(url) as (address, engine), _migrating(address, engine, schema) as (connection, config):
        from alembic import command

        before = installed(connection, schema)
        refuse_newer(address, before, schema)
        if before is None or (revision != "base" and before < revision):
            raise UsageError(f"{address} has schema {before or 'base'}, which is not above {revision}")
        command.downgrade(config, revision)


def current(url: str, schema: Schema = CATALOG) -> str | None:
    """The revision a database has; None when it has no tables yet.

    Raises:
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    address = parse_address(url)
    if address.path is not None and not address.path.exists():
        return None  # asking must not create the file
    with _engine(url) as (_, engine), translated(address), engine.connect() as connection:
        return installed(connection, schema)


def installed(connection: Connection, schema: Schema = CATALOG) -> str | None:
    """The revision that ``connection``'s database has; None when it has none."""
    if not inspect(connection).has_table(schema.version_table):
        return None
    rows = connection.execute(text(f"SELECT version_num FROM {schema.version_table}")).scalars().all()
    return "+".join(sorted(rows)) or None


def refuse_newer(address: Address, revision: str | None, schema: Schema = CATALOG) -> None:
    """Refuse a revision that this code does not know.

    Raises:
        ConfigError: the revision is unknown.
    """
    if revision is not None and revision not in schema.revisions:
        raise ConfigError(
            f"{address} has schema {revision}; this version knows none newer than {schema.head}",
            hint=upgrade_command(),
        )


def refuse_behind(address: Address, revision: str | None, schema: Schema = CATALOG) -> None:
    """Refuse any revision but this version's own.

    Raises:
        ConfigError: the schema is missing, older or newer.
    """
    refuse_newer(address, revision, schema)
    if revision != schema.head:
        has = f"has schema {revision}" if revision else "has no schema yet"
        raise ConfigError(f"{address} {has}; this version needs {schema.head}", catalog_behind=True)


def bring_up_own(address: Address, engine: Engine, revision: str | None, schema: Schema) -> None:
    """Upgrade a SQLite file, which is its server's own; a database that servers share is upgraded by who runs them.

    Args:
        address: of the database.
        engine: of it.
        revision: what it has.
        schema: what it shall have.

    Raises:
        ConfigError: the schema is newer than this version, or PostgreSQL's is older or missing; or the tables belong
            to another application.
    """
    if address.sqlite and revision != schema.head:
        bring_up(address, engine, schema)
    else:
        refuse_behind(address, revision, schema)


def bring_up(address: Address, engine: Engine, schema: Schema = CATALOG) -> None:
    """Upgrade to this version's revision in one transaction; who waited for another's upgrade finds nothing to do.

    Raises:
        ConfigError: the schema is newer than this version, or the tables belong to another application.
        CorruptError: tables of the recorded revision are missing.
    """
    with _migrating(address, engine, schema) as (connection, config):
        from alembic import command

        revision = installed(connection, schema)
        refuse_newer(address, revision, schema)
        tables = set(schema.metadata.tables)
        taken = set(inspect(connection).get_table_names()) & tables
        if revision is None and taken:
            raise ConfigError(
                f"{address} has tables of the same names but no maskreg schema: {', '.join(sorted(taken))}",
                hint="use a database that holds nothing else",
            )
        missing = {name for name in tables if revision is not None and schema.since.get(name, "") <= revision} - taken
        if missing:
            raise CorruptError(str(address), f"tables are missing: {', '.join(sorted(missing))}", **schema.mend)
        if revision != schema.head:
            command.upgrade(config, schema.head)


@contextmanager
def _engine(url: str) -> Iterator[tuple[Address, Engine]]:
    address = parse_address(url)
    engine = make_engine(address)
    try:
        yield address, engine
    finally:
        engine.dispose()


@contextmanager
def _migrating(address: Address, engine: Engine, schema: Schema) -> Iterator[tuple[Connection, Config]]:
    # One transaction around reading the revision and changing it serializes processes; alembic's context is global
    # to the process, so threads need a lock as well.
    from alembic.config import Config

    with _alembic_is_global, translated(address), engine.execution_options(**{WRITE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        config = Config(stdout=io.StringIO())
        folder = Path(str(files("maskreg_migrations")))
        for option, path in (("script_location", folder), ("version_locations", folder / schema.folder)):
            config.set_main_option(option, str(path).replace("%", "%%"))
        config.set_main_option("path_separator", "newline")
        config.attributes["connection"] = connection
        config.attributes["metadata"] = schema.metadata
        config.attributes["version_table"] = schema.version_table
        yield connection, config
