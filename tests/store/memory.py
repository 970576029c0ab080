"""A store in the memory of one process: the contract of a store at its shortest."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

from maskreg.errors import LimitError, NotFoundError
from maskreg.store.base import ObjectInfo, Store, check_key, check_prefix


class MemoryStore(Store):
    """Objects in a dictionary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.url = f"memory://{uuid4().hex}"

    def get(self, key: str, *, max_bytes: int) -> bytes:
        entry = self._find(key)
        if entry is None:
            raise NotFoundError(f"{self.url}: there is no {key}")
        if len(entry[0]) > max_bytes:
            raise LimitError(f"{key}: {len(entry[0])} bytes; the limit is {max_bytes}")
        return entry[0]

    def head(self, key: str) -> ObjectInfo | None:
        entry = self._find(key)
        return ObjectInfo(key, len(entry[0]), entry[1]) if entry else None

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._lock:
            self.objects[key] = bytes(data), self.clock()

    def create(self, key: str, data: bytes) -> bool:
        check_key(key)
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = bytes(data), self.clock()
            return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with self._lock:
            rows = [(k, len(d), t) for k, (d, t) in self.objects.items() if k.startswith(prefix)]
        return (ObjectInfo(*row) for row in sorted(rows))

    def delete(self, keys: Iterable[str]) -> None:
        clean = [check_key(key) for key in keys]
        with self._lock:
            for key in clean:
                self.objects.pop(key, None)

    def close(self) -> None:
        pass

    def clock(self) -> datetime:
        return datetime.now(UTC)

    def _find(self, key: str) -> tuple[bytes, datetime] | None:
        check_key(key)
        with self._lock:
            return self.objects.get(key)
