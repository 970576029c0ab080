"""What the models make, what the revision makes, and which schema a database is opened with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from maskreg_cli.next_step import next_step
from sqlalchemy import Connection, inspect, text

from maskreg.catalog import open_catalog
from maskreg.catalog.engine import make_engine, parse_address
from maskreg.catalog.file import HEAD, REVISIONS
from maskreg.catalog.models import METADATA
from maskreg.catalog.schema import VERSION, current, migrate, upgrade
from maskreg.errors import ConfigError, CorruptError
from maskreg.service.auth.database import Base, upgrade_server
from tests.catalog.conftest import NewUrl

ALL = [METADATA, Base.metadata]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = make_engine(parse_address(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def execute(url: str, statement: str) -> None:
    with connected(url) as connection:
        connection.execute(text(statement))


def check_models(connection: Connection) -> None:
    options = {
        "version_table": VERSION.name,
        "compare_server_default": True,
        # The index of words is an expression, and of PostgreSQL alone.
        "include_name": lambda name, kind, _: (kind, name) != ("index", "ix_refs_words"),
    }
    context = MigrationContext.configure(connection, opts=options)
    assert compare_metadata(context, ALL) == []  # type: ignore[arg-type]  # alembic takes several


def test_the_revisions_make_what_the_models_say(new_url: NewUrl) -> None:
    with connected(new_url()) as connection:
        migrate(connection, *ALL)
        check_models(connection)
        assert connection.execute(text(f"SELECT version_num FROM {VERSION.name}")).scalars().all() == [HEAD]
        if connection.dialect.name == "postgresql":
            assert "ix_refs_words" in {index["name"] for index in inspect(connection).get_indexes("refs")}


def test_a_new_database_gets_the_tables_of_the_models(new_url: NewUrl) -> None:
    url = new_url()
    assert current(url) is None
    upgrade(url)
    assert (current(url), current(url, Base.metadata)) == (HEAD, None)
    assert upgrade_server(url) == upgrade_server(url) == (HEAD, HEAD)
    assert [current(url, tables) for tables in ALL] == [HEAD] * 2
    with connected(url) as connection:
        check_models(connection)
    open_catalog(url).close()


def test_the_known_revisions_are_the_migrations() -> None:
    scripts = ScriptDirectory(str(files("maskreg_migrations")))
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS
    assert scripts.get_heads() == [HEAD]


@pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)
def test_postgresql_waits_for_its_operator(new_url: NewUrl) -> None:
    url = new_url()
    with pytest.raises(ConfigError) as caught:
        open_catalog(url)
    assert next_step(caught.value) == "maskreg db upgrade"
    assert current(url) is None


def test_a_newer_schema_is_refused(url: str) -> None:
    execute(url, f"UPDATE {VERSION.name} SET version_num = '9999'")
    for attempt in (open_catalog, upgrade):
        with pytest.raises(ConfigError, match="9999"):
            attempt(url)
    assert current(url) == "9999"


def test_tables_of_another_application_are_left_alone(new_url: NewUrl) -> None:
    url = new_url()
    execute(url, "CREATE TABLE events (x INTEGER)")
    with pytest.raises(ConfigError, match=": events"):
        upgrade(url)
    assert current(url) is None


@pytest.mark.parametrize("new_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", ["DROP TABLE refs", f"DELETE FROM {VERSION.name}"])
def test_what_the_schema_lacks_is_damage(url: str, damage: str) -> None:
    execute(url, damage)
    with pytest.raises(CorruptError) as caught, open_catalog(url) as catalog:
        catalog.search()
    assert next_step(caught.value) == "maskreg db rebuild"
    with pytest.raises(CorruptError):
        upgrade(url)
