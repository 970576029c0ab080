"""The schema of a server: the catalog's tables, and the service's own beside them."""

from __future__ import annotations

from maskreg.catalog.sql.schema import CATALOG, Schema, current, upgrade
from maskreg.service.auth.schema import ACCOUNTS
from maskreg.service.jobs.models import JOBS

OWN: tuple[Schema, ...] = (ACCOUNTS, JOBS)
"""The service's own tables."""


def upgrade_server(url: str) -> tuple[str | None, str | None]:
    """Bring the database of a server in PostgreSQL to this version's schema: the catalog and the service's own tables.

    Returns:
        The catalog's revision before and after.
    """
    before = current(url, CATALOG)
    for schema in (CATALOG, *OWN):
        upgrade(url, schema)
    return before, current(url, CATALOG)


def upgrade_own(url: str) -> None:
    """Bring the service's own tables to this version's schema, where a database has them."""
    for schema in OWN:
        if current(url, schema) is not None:
            upgrade(url, schema)
