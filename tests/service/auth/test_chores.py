"""Chores are done by one of many processes, whichever is killed; artifacts wait to be verified in turn."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import update

from maskreg.catalog.schema import upgrade
from maskreg.digest import Digest
from maskreg.errors import ConfigError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base, ChoreRow, Database
from tests.servers import Postgres


def pass_time(accounts: Accounts, seconds: float) -> None:
    with accounts.database.write() as connection:
        connection.execute(update(ChoreRow).values(due=ChoreRow.due - seconds))


def test_one_of_many_processes_does_a_chore(accounts: Accounts, url: str) -> None:
    processes = [Accounts.open(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            claims = list(pool.map(lambda process: process.chores.claim("refresh", 60), processes))
            assert claims.count(True) == 1
            assert not any(process.chores.is_due("refresh") for process in processes)
            processes[claims.index(True)].chores.done("refresh", 0)
    assert processes[0].chores.claim("other", 60)
    for process in processes:
        process.close()


def test_the_chore_of_a_killed_process_is_done_by_another(accounts: Accounts, url: str) -> None:
    killed, alive = Accounts.open(url), accounts
    assert killed.chores.claim("refresh", 60)
    assert not alive.chores.claim("refresh", 60)
    pass_time(accounts, 61)
    assert alive.chores.claim("refresh", 60)
    assert not killed.chores.claim("refresh", 60)
    alive.chores.done("refresh", 0)
    assert killed.chores.claim("refresh", 60)
    killed.close()


def test_artifacts_wait_in_turn_and_once(accounts: Accounts) -> None:
    first, second = Digest.of(b"1"), Digest.of(b"2")
    for digest in (first, second, first):
        accounts.checks.request(digest, "ada")
    pending = accounts.checks.next()
    assert pending is not None
    assert (pending.digest, pending.by, accounts.checks.is_pending(first)) == (first, "ada", True)
    accounts.checks.done(pending)
    assert (accounts.checks.is_pending(first), accounts.checks.is_pending(second)) == (False, True)
    accounts.checks.request(first, "bob")
    accounts.checks.done(pending)
    assert accounts.checks.is_pending(first)


def test_chores_are_done_again_once_a_clock_that_was_ahead_is_right(accounts: Accounts) -> None:
    assert accounts.chores.claim("refresh", 60)
    pass_time(accounts, -3 * 365 * 86_400.0)
    assert accounts.chores.is_due("refresh")


def test_a_machine_whose_clock_is_not_that_of_the_database_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    upgrade(url, Base.metadata)
    with closing(Database.open(url)) as database:
        database.check()
        for ahead_s in (86_400, -315_576_000):
            database.clock = lambda ahead_s=ahead_s: time.time() + ahead_s  # type: ignore[misc]
            with pytest.raises(ConfigError):
                database.check()
