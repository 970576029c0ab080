"""An index over a registry's store: what exists, what it is called, what was measured. SQL behind a Protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from maskreg.catalog.base import Catalog, Searchable
from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.catalog.tables.snapshot import Snapshot
from maskreg.errors import ConfigError

__all__ = [
    "CATALOGS",
    "Answer",
    "Catalog",
    "Event",
    "Indexed",
    "Measurement",
    "Query",
    "SearchResult",
    "Searchable",
    "Snapshot",
    "open_catalog",
    "repairing",
    "set_aside",
]


_URLS = "write sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"


def _sql(url: str) -> Catalog:
    from maskreg.catalog.sql import SqlCatalog

    return SqlCatalog.open(url)


def _local(url: str) -> Catalog:
    if not url.startswith("sqlite:///") or url == "sqlite:///:memory:":
        return _sql(url)
    from maskreg.catalog.local import LocalCatalog

    return LocalCatalog.open(url)


def _http(url: str) -> Catalog:
    from maskreg.catalog.http import HttpCatalog

    return HttpCatalog(url)


CATALOGS: dict[str, Callable[[str], Catalog]] = {
    "http": _http,
    "https": _http,
    "postgresql": _sql,
    "postgresql+psycopg": _sql,
    "sqlite": _local,
}
"""How a catalog is opened, by the scheme of its URL. The implementations are imported when one is opened."""


def open_catalog(url: str) -> Catalog:
    """Open the catalog at ``url``; a local one is created and brought to this version's schema.

    Args:
        url: ``sqlite:///PATH``, ``sqlite://`` (in memory), ``postgresql+psycopg://USER@HOST/DATABASE``, or that of a
            service.

    Raises:
        ConfigError: a malformed URL, an unknown scheme, a password in the URL, or a schema of another version.
        MaskregError: the catalog cannot be opened; see :class:`~maskreg.catalog.base.Catalog`.
    """
    # The rest of the URL is not shown: it may hold a password.
    scheme, separator, _ = url.partition(":")
    if not separator or scheme not in CATALOGS:
        raise ConfigError(f"a catalog's URL cannot begin with {scheme + separator!r}", hint=_URLS)
    return CATALOGS[scheme](url)


def set_aside(url: str) -> tuple[Path, int]:
    """Rename the damaged file of a local catalog and put a new catalog in its place.

    The new one keeps the measurements, events and seen sources that can still be read; its index is empty.

    Returns:
        The renamed file, and how many measurements and events were lost, as far as that can be told.

    Raises:
        UsageError: the catalog is not a file.
    """
    from maskreg.catalog.sql import set_aside

    return set_aside(url)


def repairing(url: str) -> AbstractContextManager[None]:
    """Keep other processes from repairing the same local catalog until the block ends.

    Raises:
        TryAgainError: another process has been repairing it for too long.
    """
    from maskreg.catalog.sql import repairing

    return repairing(url)
