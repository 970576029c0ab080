"""The schema of a catalog: which revision a database has, and how it gets to another."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from maskreg.catalog.address import Address, parse_address
from maskreg.catalog.engine import WRITE, make_engine
from maskreg.catalog.faults import REBUILD, translated
from maskreg.catalog.models import Base
from maskreg.errors import ConfigError, CorruptError, UsageError

if TYPE_CHECKING:
    from alembic.config import Config

REVISIONS = ("0001", "0002", "0003", "0004")
"""Every revision this code knows, oldest first. Known without asking alembic, which is slow to import."""

HEAD = REVISIONS[-1]
"""The revision this code works with."""

VERSION_TABLE = "maskreg_schema"
"""Not alembic's default name: a database may also serve somebody else who uses alembic."""

_SINCE = {"filled": "0003"}
# Tables that the first revision does not have.

_UPGRADE = "maskreg db upgrade"
_LOCK_KEY = 0x6D61736B72656701
_alembic_is_global = threading.Lock()


def upgrade(url: str) -> None:
    """Bring a database to this code's schema; an empty one gets all its tables.

    Raises:
        ConfigError: its schema is newer than this code, or its tables are somebody else's.
        MaskregError: what ``Catalog.open`` raises when the database cannot be used.
    """
    with _engine(url) as (address, engine):
        bring_up(address, engine)


def downgrade(url: str, revision: str) -> None:
    """Take a database back to an older revision, or to ``base``: no tables at all.

    Raises:
        UsageError: no such revision, or a newer one than the database has.
        ConfigError: its schema is newer than this code.
        MaskregError: what ``Catalog.open`` raises when the database cannot be used.
    """
    if revision not in ("base", *REVISIONS):
        known = ", ".join(("base", *REVISIONS))
        raise UsageError(f"there is no schema revision {revision!r}", hint=f"one of: {known}")
    with _engine(url) as (address, engine), _migrating(address, engine) as (connection, config):
        from alembic import command

        found = installed(connection)
        refuse_newer(address, found)
        if found is None or (revision != "base" and found < revision):
            raise UsageError(f"{address} has schema {found or 'base'}, which is not above {revision}")
        command.downgrade(config, revision)


def current(url: str) -> str | None:
    """The revision a database has; None when it has no tables yet.

    Raises:
        MaskregError: what ``Catalog.open`` raises when the database cannot be used.
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


def refuse_newer(address: Address, found: str | None) -> None:
    """Refuse a revision that this code does not know.

    Raises:
        ConfigError: it is such a one.
    """
    if found is not None and found not in REVISIONS:
        raise ConfigError(
            f"{address} has schema {found}; this maskreg knows none newer than {HEAD}",
            hint="pip install --upgrade maskreg",
        )


def refuse_behind(address: Address, found: str | None) -> None:
    """Refuse any revision but this code's own.

    Raises:
        ConfigError: the schema is missing, older or newer.
    """
    refuse_newer(address, found)
    if found != HEAD:
        has = f"has schema {found}" if found else "has no schema yet"
        raise ConfigError(f"{address} {has}; this maskreg needs {HEAD}", hint=_UPGRADE)


def bring_up(address: Address, engine: Engine) -> None:
    """Upgrade to ``HEAD`` in one transaction; whoever comes second finds the work done.

    Raises:
        ConfigError: the schema is newer than this code, or the tables are somebody else's.
        CorruptError: the tables do not fit the revision the database claims to have.
    """
    with _migrating(address, engine) as (connection, config):
        from alembic import command

        found = installed(connection)
        refuse_newer(address, found)
        taken = set(inspect(connection).get_table_names()) & set(Base.metadata.tables)
        if found is None and taken:
            raise ConfigError(
                f"{address} already has tables of these names, but no maskreg schema: {', '.join(sorted(taken))}",
                hint="give the catalog a database of its own",
            )
        missing = {name for name in Base.metadata.tables if found is not None and _SINCE.get(name, "") <= found} - taken
        if missing:
            raise CorruptError(str(address), f"tables are missing: {', '.join(sorted(missing))}", hint=REBUILD)
        if found != HEAD:
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
    # One transaction from asking for the revision to having changed it, so that two processes take turns;
    # and alembic's context is global to the process, so that threads have to take turns too.
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
