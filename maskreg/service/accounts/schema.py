"""The revisions of the service's own tables."""

from __future__ import annotations

from maskreg.catalog.sql.schema import Schema
from maskreg.service.accounts.models import Base

ACCOUNTS = Schema(
    Base.metadata,
    ("0001",),
    "maskreg_service_schema",
    "service",
    mend="restore the database from a backup",
)
"""The tables of who may do what."""
