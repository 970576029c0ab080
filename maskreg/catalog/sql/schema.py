"""The schema of a catalog: which revision a database has, and how to migrate it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from maskreg.catalog.base import REBUILD
from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.faults import translated
from maskreg.catalog.sql.models import Base
from maskreg.catalog.tables.columns import HEAD, REVISIONS, VERSION_TABLE
from maskreg.errors import ConfigError, CorruptError, UsageError

if TYPE_CHECKING:
    from alembic.config import Config

_SINCE = {"filled": "0003", "sums": "0005"}
# The revision that added a table; the others exist since the first.

_UPGRADE = "maskreg db upgrade"
_LOCK_KEY = 0x6D61736B72656701
_alembic_is_global = threading.Lock()


def upgrade(url: str) -> None:
    """Migrate a database to this version's schema; an empty one gets all tables.

    Raises:
        ConfigError: its schema is newer than this version, or its tables belong to another application.
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    with _engine(url) as (address, engine):
        bring_up(address, engine)


def downgrade(url: str, revision: str) -> None:
    """Migrate a database back to an older revision, or to ``base``: no tables at all.

    Raises:
        UsageError: an unknown revision, or one newer than the database has.
        ConfigError: its schema is newer than this version.
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    if revision not in ("base", *REVISIONS):
        known = ", ".join(("base", *REVISIONS))
        raise UsageError(f"there is no schema revision {revision!r}", hint=f"one of: {known}")
    with _engine(url) as (address, engine), _migrating(address, engine) as (connection, config):
        from alembic import command

        before = installed(connection)
        refuse_newer(address, before)
        if before is None or (revision != "base" and before < revision):
            raise UsageError(f"{address} has schema {before or 'base'}, which is not above {revision}")
        command.downgrade(config, revision)


def current(url: str) -> str | None:
    """The revision a database has; None when it has no tables yet.

    Raises:
        MaskregError: the database cannot be used; see :meth:`maskreg.catalog.sql.catalog.SqlCatalog.open`.
    """
    address = parse_address(url)
    if address.path is not None and not address.path.exists():
        return None  # asking must not create the file
    with _engine(url) as (_, engine), translated(address), engine.connect() as connection:
        return installed(connection)


def installed(connection: Connection) -> str | None:
    """The revision that ``connection``'s database has; None when it has none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    rows = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    return "+".join(sorted(rows)) or None


def refuse_newer(address: Address, revision: str | None) -> None:
    """Refuse a revision that this code does not know.

    Raises:
        ConfigError: the revision is unknown.
    """
    if revision is not None and revision not in REVISIONS:
        raise ConfigError(
            f"{address} has schema {revision}; this version knows none newer than {HEAD}",
            hint="pip install --upgrade maskreg",
        )


def refuse_behind(address: Address, revision: str | None) -> None:
    """Refuse any revision but this version's own.

    Raises:
        ConfigError: the schema is missing, older or newer.
    """
    refuse_newer(address, revision)
    if revision != HEAD:
        has = f"has schema {revision}" if revision else "has no schema yet"
        raise ConfigError(f"{address} {has}; this version needs {HEAD}", hint=_UPGRADE)


def bring_up(address: Address, engine: Engine) -> None:
    """Upgrade to ``HEAD`` in one transaction; a process that waited for another's upgrade finds nothing to do.

    Raises:
        ConfigError: the schema is newer than this version, or the tables belong to another application.
        CorruptError: tables of the recorded revision are missing.
    """
    with _migrating(address, engine) as (connection, config):
        from alembic import command

        revision = installed(connection)
        refuse_newer(address, revision)
        taken = set(inspect(connection).get_table_names()) & set(Base.metadata.tables)
        if revision is None and taken:
            raise ConfigError(
                f"{address} has tables of the same names but no maskreg schema: {', '.join(sorted(taken))}",
                hint="give the catalog a database of its own",
            )
        missing = {
            name for name in Base.metadata.tables if revision is not None and _SINCE.get(name, "") <= revision
        } - taken
        if missing:
            raise CorruptError(str(address), f"tables are missing: {', '.join(sorted(missing))}", hint=REBUILD)
        if revision != HEAD:
            command.upgrade(config, HEAD)


@contextmanager
def _engine(url: str) -> Iterator[tuple[Address, Engine]]:
    address = parse_address(url)
    engine = make_engine(address)
    try:
        yield address, engine
    finally:
        engine.dispose()


@contextmanager
def _migrating(address: Address, engine: Engine) -> Iterator[tuple[Connection, Config]]:
    # One transaction around reading the revision and changing it serializes processes; alembic's context is global
    # to the process, so threads need a lock as well.
    from alembic.config import Config

    with _alembic_is_global, translated(address), engine.execution_options(**{WRITE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        config = Config(stdout=io.StringIO())
        folder = str(files("maskreg_migrations"))
        config.set_main_option("script_location", folder.replace("%", "%%"))
        config.attributes["connection"] = connection
        config.attributes["version_table"] = VERSION_TABLE
        yield connection, config
