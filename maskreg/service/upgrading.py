"""The schema of a server: a catalog's tables, and the tables of accounts and jobs beside them."""

from __future__ import annotations

from maskreg.catalog.models import METADATA
from maskreg.catalog.schema import current, upgrade
from maskreg.service.auth.models import Base
from maskreg.service.jobs.models import JobsBase

OWN = (Base.metadata, JobsBase.metadata)
"""The server's own tables: accounts and jobs."""


def upgrade_server(url: str) -> tuple[str | None, str | None]:
    """Bring the database of a server in PostgreSQL to this version's schema; its revisions before and after."""
    before = current(url)
    upgrade(url, METADATA, *OWN)
    return before, current(url)


def upgrade_own(url: str) -> None:
    """Bring the server's own tables to this version's schema, where a database has them."""
    for tables in OWN:
        if current(url, tables) is not None:
            upgrade(url, tables)
