from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from maskreg_cli.next_step import next_step
from sqlalchemy import Connection, inspect, text

from maskreg.catalog import Catalog, Event, Measurement, Query, open_catalog
from maskreg.catalog.sql import current, downgrade, upgrade
from maskreg.catalog.sql.address import parse_address
from maskreg.catalog.sql.engine import make_engine
from maskreg.catalog.sql.models import Base
from maskreg.catalog.tables.columns import HEAD, REVISIONS, VERSION_TABLE
from maskreg.errors import ConfigError, CorruptError, UsageError
from maskreg.ref import Card
from tests.catalog.conftest import NewUrl, digest, entry, manifest


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


def fill(catalog: Catalog) -> None:
    for number in range(3):
        catalog.put_artifact(digest(number), manifest(nnz=number))
        catalog.put_ref(entry(f"a{number}", digest(number), card=Card("f", "m", "l", "d", {"k": "v"})))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.5, str(digest(2)), detail={"x": 1}))
    catalog.record(Measurement(digest(1), "rlvr_overlap", 0.75, str(digest(2)), detail={"x": 1}))
    catalog.record(Measurement(digest(2), "rlvr_overlap", 0.1, by_group="ffn"))
    catalog.log(Event("publish", "a0", "ada", {"é": None}))
    catalog.saw_source("root", "/models/a")


def everything(catalog: Catalog) -> object:
    measured = [catalog.measurements(digest(number)) for number in range(3)]
    return catalog.search(), catalog.search(Query(text="a")), measured, catalog.events(), catalog.seen_sources("root")


def test_migrations_make_what_the_models_say(url: str) -> None:
    with connected(url) as connection:
        # What words are looked for in is of PostgreSQL alone.
        options = {
            "version_table": VERSION_TABLE,
            "compare_server_default": True,
            "include_name": lambda name, kind, _: (kind, name) not in (("index", "ix_refs_words"), ("table", "words")),
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_the_known_revisions_are_the_migrations() -> None:
    scripts = ScriptDirectory(str(files("maskreg_migrations")))
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS
    assert scripts.get_heads() == [HEAD]


def test_upgrade_and_downgrade_keep_the_data(url: str) -> None:
    with open_catalog(url) as catalog:
        fill(catalog)
        before = everything(catalog)
        assert [f.rlvr_overlap for f in catalog.search(Query(sort="name"))] == [None, 0.75, None][::-1]
    downgrade(url, "0001")
    assert current(url) == "0001"
    with connected(url) as connection:
        assert "rlvr_overlap" not in {c["name"] for c in inspect(connection).get_columns("artifacts")}
        assert connection.execute(text("SELECT count(*) FROM artifacts")).scalar() == 3
    upgrade(url)
    assert current(url) == HEAD
    with open_catalog(url) as catalog:
        assert everything(catalog) == before
    test_migrations_make_what_the_models_say(url)


def test_downgrade_to_base_leaves_no_table(url: str) -> None:
    with open_catalog(url) as catalog:
        fill(catalog)
    downgrade(url, "base")
    assert current(url) is None
    with connected(url) as connection:
        assert set(inspect(connection).get_table_names()) <= {VERSION_TABLE}
    upgrade(url)
    with open_catalog(url) as catalog:
        assert everything(catalog) == ([], [], [[], [], []], [], [])


def test_a_downgrade_to_anything_but_an_older_revision_is_refused(new_url: NewUrl) -> None:
    fresh = new_url()
    with pytest.raises(UsageError, match="no schema revision '9'"):
        downgrade(fresh, "9")
    with pytest.raises(UsageError, match="not above"):
        downgrade(fresh, "0001")
    upgrade(fresh)
    downgrade(fresh, "0001")
    with pytest.raises(UsageError, match="not above"):
        downgrade(fresh, HEAD)


def test_an_upgrade_that_is_not_needed_changes_nothing(url: str) -> None:
    upgrade(url)
    assert current(url) == HEAD


def test_sqlite_is_migrated_silently(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/deep/er/catalog.db"
    assert current(url) is None
    assert not (tmp_path / "deep").exists()
    open_catalog(url).close()
    downgrade(url, "0001")
    open_catalog(url).close()
    assert current(url) == HEAD
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)
def test_a_postgresql_that_is_behind_is_refused(new_url: NewUrl) -> None:
    url = new_url()
    with pytest.raises(ConfigError, match="no schema yet") as caught:
        open_catalog(url)
    assert next_step(caught.value) == "maskreg db upgrade"
    assert current(url) is None
    upgrade(url)
    downgrade(url, "0001")
    with pytest.raises(ConfigError, match=f"has schema 0001; this version needs {HEAD}") as caught:
        open_catalog(url)
    assert next_step(caught.value) == "maskreg db upgrade"
    upgrade(url)
    open_catalog(url).close()


def test_a_newer_schema_is_refused(url: str) -> None:
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for attempt in (open_catalog, upgrade, lambda u: downgrade(u, "base")):
        with pytest.raises(ConfigError, match="schema 9999"):
            attempt(url)
    assert current(url) == "9999"


def test_tables_of_somebody_else_are_left_alone(new_url: NewUrl) -> None:
    url = new_url()
    execute(url, "CREATE TABLE events (x INTEGER)")
    with pytest.raises(ConfigError, match="has tables of the same names"):
        upgrade(url)
    assert current(url) is None


@pytest.mark.parametrize("new_url", ["sqlite"], indirect=True)
def test_a_missing_table_is_damage(url: str) -> None:
    execute(url, "DROP TABLE refs")
    with open_catalog(url) as catalog, pytest.raises(CorruptError) as caught:
        catalog.search()
    assert next_step(caught.value) == "maskreg db rebuild"
    with pytest.raises(CorruptError, match="refs"):
        upgrade(url)


def test_a_migration_that_fails_leaves_the_old_schema(url: str) -> None:
    downgrade(url, "0001")
    # The second revision adds this column, and then cannot.
    execute(url, "ALTER TABLE artifacts ADD COLUMN rlvr_against TEXT")
    with pytest.raises(Exception, match="rlvr_against"):
        upgrade(url)
    assert current(url) == "0001"
    execute(url, "ALTER TABLE artifacts DROP COLUMN rlvr_against")
    upgrade(url)
    test_migrations_make_what_the_models_say(url)
