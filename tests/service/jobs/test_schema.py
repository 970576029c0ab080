"""The table of jobs: what migrations make, and which schema a queue is opened with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from maskreg.catalog.sql import downgrade, upgrade
from maskreg.catalog.sql.address import parse_address
from maskreg.catalog.sql.engine import make_engine
from maskreg.errors import ConfigError
from maskreg.service.auth.schema import ACCOUNTS
from maskreg.service.jobs.models import JOBS
from maskreg.service.jobs.queue import JobQueue
from tests.servers import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with no tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'service.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


def test_migrations_make_what_the_model_says_and_take_it_back(empty: str) -> None:
    upgrade(empty, JOBS)
    engine = make_engine(parse_address(empty))
    with engine.connect() as connection:
        options = {"version_table": JOBS.version_table, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, JOBS.metadata) == []
    downgrade(empty, "base", JOBS)
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) - {JOBS.version_table} == set()
    engine.dispose()


def test_jobs_share_a_database_with_accounts_and_a_catalog(empty: str) -> None:
    for _ in range(2):
        upgrade(empty)
        upgrade(empty, ACCOUNTS)
        upgrade(empty, JOBS)
    JobQueue.open(empty).close()


def test_the_list_of_revisions_is_that_of_the_folder() -> None:
    folder = Path(str(files("maskreg_migrations"))) / JOBS.folder
    assert tuple(sorted(path.name.partition("_")[0] for path in folder.glob("[0-9]*.py"))) == JOBS.revisions


def test_a_queue_of_another_version_is_refused(url: str) -> None:
    engine = make_engine(parse_address(url))
    try:
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {JOBS.version_table} SET version_num = '9999'"))
        with pytest.raises(ConfigError, match="has schema 9999"):
            JobQueue.open(url)
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {JOBS.version_table} SET version_num = '0001'"))
        engine.dispose()


def test_postgresql_is_upgraded_by_its_operator_it(postgres: Postgres) -> None:
    with pytest.raises(ConfigError, match="has no schema yet"):
        JobQueue.open(postgres.new_database())
