"""Queues on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from maskreg.catalog.schema import upgrade
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base, Database, JobRow
from maskreg.service.auth.roles import SYSTEM, Role
from maskreg.service.jobs.queue import JobQueue
from tests.servers import Postgres


def pass_time(queue: JobQueue, seconds: float) -> None:
    """Let every worker have been silent for so much longer, and every end be so much longer ago."""
    with queue._database.write() as connection:
        connection.execute(update(JobRow).values(beat=JobRow.beat - seconds, finished=JobRow.finished - seconds))


def with_table(url: str) -> str:
    """The same URL, of a database that has the tables of a server, a writer of team called ada, and no jobs."""
    upgrade(url, Base.metadata)
    with closing(Accounts.open(url)) as accounts:
        accounts.members.grant("team", "ada", Role.WRITER, SYSTEM)
        with accounts.database.write() as connection:
            connection.execute(delete(JobRow))
    return url


@pytest.fixture(scope="session")
def postgres_jobs(postgres: Postgres) -> str:
    """A PostgreSQL database that tests use one after another."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database with an empty queue."""
    if request.param == "postgresql":
        return with_table(request.getfixturevalue("postgres_jobs"))
    return with_table(f"sqlite:///{tmp_path / 'service.db'}")


@pytest.fixture
def queue(url: str) -> Iterator[JobQueue]:
    """An empty queue."""
    with closing(Database.open(url)) as database:
        yield JobQueue(database)
