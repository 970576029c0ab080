"""The service's own tables: what migrations make, and which schema a server starts with."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from maskreg_cli.next_step import next_step
from sqlalchemy import text

from maskreg.catalog.engine import make_engine, parse_address
from maskreg.catalog.schema import VERSION, current, upgrade
from maskreg.errors import ConfigError
from maskreg.extras import upgrade_command
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base, Database
from tests.servers import Postgres


def test_a_schema_of_another_version_is_refused(url: str) -> None:
    upgrade(url, Base.metadata)
    accounts = Accounts.open(url)
    engine = make_engine(parse_address(url))
    for revision, hint in (("9999", upgrade_command()), ("", "maskreg db upgrade")):
        with engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {VERSION.name}"))
            if revision:
                connection.execute(text(f"INSERT INTO {VERSION.name} VALUES ('{revision}')"))
        with pytest.raises(ConfigError) as caught:
            accounts.database.check()
        assert next_step(caught.value) == hint
    engine.dispose()
    accounts.close()


def test_postgresql_waits_for_its_operator(postgres: Postgres) -> None:
    url = postgres.new_database()
    with pytest.raises(ConfigError, match="has no schema yet") as caught:
        Accounts.open(url)
    assert next_step(caught.value) == "maskreg db upgrade"
    assert current(url, Base.metadata) is None


def test_a_machine_whose_clock_is_not_that_of_the_database_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    upgrade(url, Base.metadata)
    with closing(Database.open(url)) as database:
        database.check()
        for ahead_s, word in ((86_400, "ahead of"), (-315_576_000, "behind")):
            database.clock = lambda ahead_s=ahead_s: time.time() + ahead_s  # type: ignore[misc]
            with pytest.raises(ConfigError, match=rf"this machine is [\d,]+ seconds {word} the clock of post"):
                database.check()
