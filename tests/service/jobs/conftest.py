"""Queues on both databases, and a server with an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from maskreg.service.auth.database import Database
from maskreg.service.jobs.queue import JobQueue
from maskreg.workspace.verbs.jobs import JobState
from tests.servers import Postgres
from tests.service.patching import Site, module_site, pass_time, with_table

__all__ = ["module_site"]


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


@pytest.fixture
def site(module_site: Site, tmp_path: Path) -> Site:
    """The server of the module, with an empty folder of outputs and no job."""
    for job in module_site.queue.list(states=[JobState.QUEUED, JobState.RUNNING]):
        module_site.queue.cancel(job.id, "test")
    pass_time(module_site.queue, 60)
    assert module_site.queue.claim("test") is None
    return module_site.having(outputs=tmp_path)
