"""An index over a registry's store: what exists, what it is called, what was measured, in one schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskreg.catalog.query import Answer, Event, Measurement, Query, SearchResult

if TYPE_CHECKING:
    from maskreg.catalog.catalog import Catalog

__all__ = ["Answer", "Event", "Measurement", "Query", "SearchResult", "open_catalog"]


def open_catalog(url: str) -> Catalog:
    """Open the catalog at ``url``; a SQLite file is created, and brought to this version's schema.

    Args:
        url: ``sqlite:///PATH``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/DATABASE``.
    """
    # SQLAlchemy takes .15 CPU seconds to import: only commands that open a catalog pay for it.
    from maskreg.catalog.catalog import Catalog

    return Catalog.open(url)
