"""A store in the memory of one process, for tests and scratch work."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from maskreg.errors import LimitError, NotFoundError
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.keys import check_key, check_prefix


class MemoryStore(Store):
    """Objects in a dictionary. A pickle of it is a reference that is valid in the same process only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, datetime]] = {}
        self._name = uuid4().hex
        self.url = f"memory://{self._name}"
        _alive[self._name] = self

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """The store of this name while a reference to it is alive, otherwise a new one."""
        with _naming:
            store = _alive.get(name)
            if store is None:
                store = cls()
                store._name, store.url = name, f"memory://{name}"
                _alive[name] = store
            return store

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; see :class:`~maskreg.store.base.Store`."""
        entry = self._find(key)
        if entry is None:
            raise NotFoundError(f"{self.url}: there is no {key}")
        if len(entry[0]) > max_bytes:
            raise LimitError(f"{key}: {len(entry[0])} bytes; the limit is {max_bytes}")
        return entry[0]

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time, or None."""
        entry = self._find(key)
        return ObjectInfo(key, len(entry[0]), entry[1]) if entry else None

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        check_key(key)
        with self._lock:
            self._objects[key] = bytes(data), self.clock()

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none."""
        check_key(key)
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = bytes(data), self.clock()
            return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, in key order, as of this call."""
        check_prefix(prefix)
        with self._lock:
            rows = [(k, len(d), t) for k, (d, t) in self._objects.items() if k.startswith(prefix)]
        return (ObjectInfo(*row) for row in sorted(rows))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is not an error."""
        clean = [check_key(key) for key in keys]
        with self._lock:
            for key in clean:
                self._objects.pop(key, None)

    def close(self) -> None:
        """Do nothing: other references keep using the store."""

    def clock(self) -> datetime:
        """The time by this machine's clock."""
        return datetime.now(UTC)

    def _find(self, key: str) -> tuple[bytes, datetime] | None:
        check_key(key)
        with self._lock:
            return self._objects.get(key)

    def __repr__(self) -> str:
        return f"MemoryStore({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_process_store, (self._name,)


_alive: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
_naming = threading.Lock()


def _same_process_store(name: str) -> MemoryStore:
    store = _alive.get(name)
    if store is None:
        raise NotFoundError(f"memory://{name} belongs to another process, or no longer exists")
    return store
