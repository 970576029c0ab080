"""SQL index of a registry: what exists, what it is called, what was measured."""

from __future__ import annotations

from maskreg.catalog.catalog import Catalog
from maskreg.catalog.query import Found, Query
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.salvage import set_aside
from maskreg.catalog.schema import current, downgrade, upgrade

__all__ = [
    "Catalog",
    "Event",
    "Found",
    "Indexed",
    "Measurement",
    "Query",
    "current",
    "downgrade",
    "set_aside",
    "upgrade",
]
