"""The revisions of the service's own tables."""

from __future__ import annotations

from maskreg.catalog.sql.schema import Schema
from maskreg.service.auth.models import Base

ACCOUNTS = Schema(
    Base.metadata,
    ("0001", "0002"),
    "maskreg_service_schema",
    "service",
    {"service_chores": "0002", "service_checks": "0002"},
    mend={"hint": "restore the database from a backup"},
)
"""The tables of accounts."""
