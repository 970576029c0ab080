"""Accounts on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.catalog.schema import upgrade
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Base
from tests.servers import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with no tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'service.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def accounts(url: str) -> Iterator[Accounts]:
    """Accounts without any use."""
    upgrade(url, Base.metadata)
    accounts = Accounts.open(url)
    yield accounts
    accounts.close()
