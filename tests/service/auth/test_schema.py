"""The service's own tables: what migrations make, and which schema a server starts with."""

from __future__ import annotations

import time
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from maskreg_cli.next_step import next_step
from sqlalchemy import inspect, text

from maskreg.catalog import open_catalog
from maskreg.catalog.sql import current, downgrade, upgrade
from maskreg.catalog.sql.address import parse_address
from maskreg.catalog.sql.engine import make_engine
from maskreg.errors import ConfigError
from maskreg.extras import upgrade_command
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Database
from maskreg.service.auth.schema import ACCOUNTS
from tests.servers import Postgres


def test_migrations_make_what_the_models_say_and_take_it_back(url: str) -> None:
    upgrade(url, ACCOUNTS)
    engine = make_engine(parse_address(url))
    with engine.connect() as connection:
        options = {"version_table": ACCOUNTS.version_table, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, ACCOUNTS.metadata) == []
    downgrade(url, "base", ACCOUNTS)
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) - {ACCOUNTS.version_table} == set()
    engine.dispose()


def test_the_list_of_revisions_is_that_of_the_folder() -> None:
    folder = Path(str(files("maskreg_migrations"))) / ACCOUNTS.folder
    names = sorted(path.name.partition("_")[0] for path in folder.glob("[0-9]*.py"))
    assert tuple(names) == ACCOUNTS.revisions


def test_accounts_share_a_database_with_a_catalog(url: str) -> None:
    for _ in range(2):
        upgrade(url)
        upgrade(url, ACCOUNTS)
    open_catalog(url).close()
    Accounts.open(url).close()


def test_a_schema_of_another_version_is_refused(url: str) -> None:
    upgrade(url, ACCOUNTS)
    accounts = Accounts.open(url)
    engine = make_engine(parse_address(url))
    for revision, hint in (("9999", upgrade_command()), ("", "maskreg db upgrade")):
        with engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {ACCOUNTS.version_table}"))
            if revision:
                connection.execute(text(f"INSERT INTO {ACCOUNTS.version_table} VALUES ('{revision}')"))
        with pytest.raises(ConfigError) as caught:
            accounts.ready()
        assert next_step(caught.value) == hint
    engine.dispose()
    accounts.close()


def test_postgresql_is_upgraded_by_its_operator_it(postgres: Postgres) -> None:
    url = postgres.new_database()
    with pytest.raises(ConfigError, match="has no schema yet") as caught:
        Accounts.open(url)
    assert next_step(caught.value) == "maskreg db upgrade"
    assert current(url, ACCOUNTS) is None


def test_a_file_of_an_older_version_is_upgraded_and_keeps_what_it_holds(tmp_path: Path) -> None:
    """It is its server's own. A database that servers share is upgraded by who runs them."""
    url = f"sqlite:///{tmp_path / 'service.db'}"
    with closing(Accounts.open(url)) as accounts:
        first = accounts.tokens.first()
    downgrade(url, ACCOUNTS.revisions[0], ACCOUNTS)
    assert current(url, ACCOUNTS) != ACCOUNTS.head
    with closing(Accounts.open(url)) as accounts:
        assert first is not None and accounts.authenticate(first.token).name == first.name
    assert current(url, ACCOUNTS) == ACCOUNTS.head


def test_a_shared_database_of_an_older_version_waits(postgres: Postgres) -> None:
    url = postgres.new_database()
    upgrade(url, ACCOUNTS)
    downgrade(url, ACCOUNTS.revisions[0], ACCOUNTS)
    with pytest.raises(ConfigError, match=f"has schema {ACCOUNTS.revisions[0]}; this version needs {ACCOUNTS.head}"):
        Accounts.open(url)
    assert current(url, ACCOUNTS) == ACCOUNTS.revisions[0]


def test_a_machine_whose_clock_is_not_that_of_the_database_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    upgrade(url, ACCOUNTS)
    with closing(Database.open(url)) as database:
        database.check()
        for ahead_s, word in ((86_400, "ahead of"), (-315_576_000, "behind")):
            database.clock = lambda ahead_s=ahead_s: time.time() + ahead_s  # type: ignore[misc]
            with pytest.raises(ConfigError, match=rf"the clock of this machine is [\d,]+ seconds {word} that of post"):
                database.check()
