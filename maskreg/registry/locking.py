"""Exclusive turns for writers of a store that cannot refuse the second of two create-only writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maskreg.errors import ConfigError
from maskreg.registry.index.index import Index
from maskreg.store import Store
from maskreg.store.probe import probe


class StoreLock:
    """Serializes writers through the catalog's database, but only where the store needs it.

    The store is probed before the first write::

        create(k, first), create(k, second)
        second refused    the store itself decides who is first: no lock, the catalog is not even opened
        second accepted   hold the lock `name` in the catalog; only PostgreSQL serializes all machines
    """

    def __init__(self, store: Store, index: Index) -> None:
        """Guard writes to ``store`` with the catalog of ``index``; nothing is probed yet."""
        self._store = store
        self._index = index
        self._safe: bool | None = None

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Hold the lock ``name``, if the store needs one.

        Yields:
            Whether the store's create-only writes can be relied on.

        Raises:
            ConfigError: they cannot, and the catalog is not PostgreSQL.
            TryAgainError: another writer held the lock for too long.
        """
        if self._safe is None:
            self._safe = probe(self._store).safe
        if self._safe:
            yield True
            return
        catalog = self._index.must_open()
        if not catalog.safe_refs:
            raise ConfigError(
                f"{self._store.url} does not support create-only writes, so its catalog has to be PostgreSQL"
            )
        with catalog.lock(name):
            yield False
