"""Create-only writes to a store that may not refuse the second of two: then writers take turns."""

from __future__ import annotations

from maskreg.errors import ConfigError
from maskreg.registry.index.index import Index
from maskreg.store import Store
from maskreg.store.probe import probe


class Turns:
    """Writes each object once, with the help of the catalog's database where the store needs it.

    The store is probed before the first write::

        create(k, first), create(k, second)
        second refused    the store itself decides who is first: the catalog is not even opened
        second accepted   hold the lock `k` in the catalog, look whether `k` is there, and put it;
                          only PostgreSQL serializes all machines
    """

    def __init__(self, store: Store, index: Index) -> None:
        """Write to ``store``, in turns by the catalog of ``index``; nothing is probed yet."""
        self._store = store
        self._index = index
        self._safe: bool | None = None

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; returns whether this call wrote it.

        Raises:
            ConfigError: create-only writes do not hold, and the catalog is not PostgreSQL.
            TryAgainError: another writer held the lock for too long.
        """
        if self._safe is None:
            self._safe = probe(self._store).safe
        if self._safe:
            return self._store.create(key, data)
        catalog = self._index.must_open()
        if not catalog.safe_refs:
            raise ConfigError(
                f"{self._store.url} does not support create-only writes, so its catalog has to be PostgreSQL"
            )
        with catalog.lock(key):
            if self._store.head(key) is not None:
                return False
            self._store.put(key, data)
            return True
