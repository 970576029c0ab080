"""Objects of one artifact, each fetched whole and hashed before any byte of it is used.

``get`` is called by many threads for ranges of the same shard. Each object is fetched once, without blocking others::

    with lock:      in the cache? return it; otherwise take the lock of this key
    with key lock:  in the cache now (the thread before fetched it)? return it
                    fetch, hash, check, put into the cache
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.manifest import Manifest, Object
from maskreg.artifact.presence import read_object
from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError
from maskreg.store.base import ObjectInfo, Store

CACHE_BYTES = 48 << 20
"""Verified objects kept in memory, so that ranges of the same shard cost one fetch."""

Check = Callable[[str, bytes], None]


class VerifiedObjects:
    """A read-only store of one artifact's objects; keys are relative to the artifact.

    It holds exactly what the manifest lists. Safe to use from many threads.
    """

    def __init__(self, store: Store, digest: Digest, manifest: Manifest, check: Check) -> None:
        """Wrap ``store``.

        Args:
            store: where the artifact is.
            digest: the artifact.
            manifest: its manifest, checked against ``digest``.
            check: called once with key and bytes of each object, after its digest and before its use.
        """
        self._store = store
        self._digest = digest
        self._prefix = artifact_prefix(digest)
        self._check = check
        self._objects = {o.key: o for o in manifest.objects}
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()
        self._key_locks: dict[str, threading.Lock] = {}
        self.url = store.url
        self.hashed: set[str] = set()
        """Keys whose bytes this instance has hashed."""

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """An object's bytes, verified.

        Raises:
            NotFoundError: the manifest lists no such object.
            CorruptError: it is missing, or its bytes hash to something else.
        """
        expected = self._objects.get(key)
        if expected is None:
            if "/c/" in key:
                # Zarr would read zeros for a missing chunk.
                raise CorruptError(self._prefix + key, "the manifest does not list this chunk")
            raise NotFoundError(f"{key}: not an object of this artifact")
        if expected.size > max_bytes:
            raise LimitError(f"{key}: {expected.size} bytes; the limit is {max_bytes}")
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            with self._lock:
                if key in self._cache:
                    return self._cache[key]
            data = self.fetch(expected)
            self._check(key, data)
            self._remember(key, data)
        return data

    def fetch(self, expected: Object) -> bytes:
        """Read an object from the store and hash it, without the cache.

        Raises:
            CorruptError: it is missing, or its bytes hash to something else.
        """
        data = read_object(self._store, self._digest, expected)
        with self._lock:
            self.hashed.add(expected.key)
        return data

    def _remember(self, key: str, data: bytes) -> None:
        with self._lock:
            self._cache[key] = data
            self._cached_bytes += len(data)
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= len(dropped)

    def head(self, key: str) -> ObjectInfo | None:
        """Key and size from the manifest; the time is not known."""
        expected = self._objects.get(key)
        return ObjectInfo(key, expected.size, _NO_TIME) if expected else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects that the manifest lists below ``prefix``, in key order."""
        for key, expected in self._objects.items():
            if key.startswith(prefix):
                yield ObjectInfo(key, expected.size, _NO_TIME)

    def close(self) -> None:
        """Do nothing: the wrapped store stays open."""

    def clock(self) -> datetime:
        """The wrapped store's clock."""
        return self._store.clock()

    def put(self, key: str, data: bytes) -> None:
        """Refuse: artifacts do not change."""
        raise PermissionError(f"{key}: artifacts are immutable")

    def create(self, key: str, data: bytes) -> bool:
        """Refuse: artifacts do not change."""
        raise PermissionError(f"{key}: artifacts are immutable")

    def delete(self, keys: Iterable[str]) -> None:
        """Refuse: artifacts do not change."""
        raise PermissionError("artifacts are immutable")


_NO_TIME = datetime.fromtimestamp(0).astimezone()
