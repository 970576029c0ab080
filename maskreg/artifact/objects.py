"""Objects of one artifact, each fetched whole and hashed before any byte of it is used.

Many threads borrow ranges of the same shard. Each object is fetched once, without blocking others::

    with lock:      held? return it; otherwise take the lock of this key
    with key lock:  held now (the thread before fetched it)? return it
                    fetch, hash, check, hold

A thread that finds the key lock taken would only wait, so it first fetches the next shard of the same array.

The memory of large local objects is used again, because touching a page for the first time costs more than reading into
it. A borrowed object keeps its memory; of the others, the least recently used give theirs to the next::

    shard 0   borrowed twice    stays
    shard 1   -                 its memory takes shard 4
    shard 2   -                 stays while all held together take no more than CACHE_BYTES

A reader of hundreds of artifacts has no room for a shard of each. There, an object is hashed once, and parts of its
file are read from then on; see :meth:`VerifiedObjects.opened`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from io import BufferedReader

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.manifest import Manifest, Object
from maskreg.artifact.presence import read_object, read_object_into, reading, require_match
from maskreg.digest import Digest
from maskreg.errors import CorruptError, LimitError, NotFoundError
from maskreg.store.base import Store

CACHE_BYTES = 48 << 20
"""Verified objects kept in memory, so that ranges of the same shard cost one fetch."""

_LARGE_BYTES = 1 << 20  # memory of smaller objects is not used again

Check = Callable[[str, memoryview], None]
Memory = npt.NDArray[np.uint8]


@dataclass
class _Held:
    data: memoryview
    memory: Memory  # what data is a view of; empty when it is not to be used again
    users: int = 0


class VerifiedObjects:
    """One artifact's objects, read from a store; keys are relative to the artifact.

    It holds exactly what the manifest lists. Safe to use from many threads.
    """

    def __init__(self, store: Store, digest: Digest, manifest: Manifest, check: Check) -> None:
        """Read from ``store``; ``check`` gets key and bytes of each object, after its digest and before its use."""
        self._store = store
        self._digest = digest
        self._prefix = artifact_prefix(digest)
        self._check = check
        self._objects = {o.key: o for o in manifest.objects}
        self._largest = max((o.size for o in manifest.objects if "/c/" in o.key), default=0)
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._held_bytes = 0
        self.room = CACHE_BYTES
        """Bytes of verified objects that are kept in memory."""
        self._spare: list[Memory] = []
        self._lock = threading.Lock()
        self._key_locks: dict[str, threading.Lock] = {}
        self.hashed: set[str] = set()
        """Keys whose bytes this instance has hashed."""

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """A copy of an object's bytes, verified."""
        with self.borrow(key, max_bytes=max_bytes) as data:
            return bytes(data)

    @contextmanager
    def borrow(self, key: str, *, max_bytes: int) -> Iterator[memoryview]:
        """An object's bytes, verified; in the memory of another object after the ``with`` block."""
        expected = self._expected(key, max_bytes)
        held = self._lent(key) or self._fetched(expected, max_bytes)
        try:
            yield held.data
        finally:
            with self._lock:
                held.users -= 1
                self._drop_unused()

    @property
    def holds_shards(self) -> bool:
        """Whether there is room for two shards, which threads that go through an array need at a time."""
        return self.room >= 2 * self._largest or self._store.files is None

    @property
    def chunks(self) -> int:
        """Chunks of an array, of 1 MiB at most, that stay in memory: of neighboring blocks, where there is room."""
        return 4 if self.holds_shards else 2 if self.room else 1

    @contextmanager
    def opened(self, key: str, *, max_bytes: int) -> Iterator[tuple[BufferedReader, int]]:
        """The file of an object on a disk and its size, to read parts of it; hashed whole before the first of them."""
        expected = self._expected(key, max_bytes)
        files = self._store.files
        assert files is not None  # see holds_shards
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with reading(self._digest, expected) as path, files.opened(path, expected.size) as (file, size):
            with key_lock:
                if key not in self.hashed:
                    digest = f"sha256:{file_digest(file, 'sha256').hexdigest()}"
                    require_match((size, digest) == (expected.size, expected.sha256), path, self._digest)
                    self.hashed.add(key)
            yield file, size

    def check(self, expected: Object) -> None:
        """Read an object, hash it, and check it as its first use would; nothing of it is held."""
        held = self.load(expected)
        with self._lock:
            self._recycle(held)

    def _expected(self, key: str, max_bytes: int) -> Object:
        expected = self._objects.get(key)
        if expected is None:
            if "/c/" in key:
                # Zarr would read zeros for a missing chunk.
                raise CorruptError(self._prefix + key, "the manifest does not list this chunk")
            raise NotFoundError(f"{key}: not an object of this artifact")
        if expected.size > max_bytes:
            raise LimitError(f"{key}: {expected.size} bytes; the limit is {max_bytes}")
        return expected

    def _lent(self, key: str) -> _Held | None:
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.users += 1
                self._held.move_to_end(key)
            return held

    def _fetched(self, expected: Object, max_bytes: int) -> _Held:
        with self._lock:
            key_lock = self._key_locks.setdefault(expected.key, threading.Lock())
        if not key_lock.acquire(blocking=False):
            self._read_ahead(expected.key, max_bytes)
            key_lock.acquire()
        try:
            return self._lent(expected.key) or self._hold(expected)
        finally:
            key_lock.release()

    def _read_ahead(self, key: str, max_bytes: int) -> None:
        # Key of the shard after another: ``data.zarr/delta/c/8`` after ``data.zarr/delta/c/7``.
        array, separator, number = key.partition("/c/")
        first, slash, rest = number.partition("/")
        following = self._objects.get(f"{array}/c/{int(first) + 1}{slash}{rest}" if separator else "")
        if following is None or following.size > max_bytes:
            return
        with self._lock:
            key_lock = self._key_locks.setdefault(following.key, threading.Lock())
        if not key_lock.acquire(blocking=False):
            return
        try:
            with self._lock:
                is_held = following.key in self._held
            if not is_held:
                self._hold(following).users -= 1
        finally:
            key_lock.release()

    def _hold(self, expected: Object) -> _Held:
        held = self.load(expected)
        held.users = 1
        with self._lock:
            self._held[expected.key] = held
            self._held_bytes += expected.size
            self._drop_unused()
        return held

    def load(self, expected: Object) -> _Held:
        """Read an object and verify it."""
        if (files := self._store.files) is not None:
            memory = self._memory(expected.size)
            data = memory.data[: expected.size]
            read_object_into(files, self._digest, expected, data)
        else:
            memory, data = np.empty(0, np.uint8), memoryview(read_object(self._store, self._digest, expected))
        with self._lock:
            self.hashed.add(expected.key)
        self._check(expected.key, data)
        return _Held(data, memory)

    def _memory(self, size: int) -> Memory:
        # Not a bytearray, which is filled with zeros first, while all other threads wait.
        if size < _LARGE_BYTES:
            return np.empty(size, np.uint8)
        with self._lock:
            for number, memory in enumerate(self._spare):
                if memory.size >= size:
                    return self._spare.pop(number)
        return np.empty(max(size, self._largest), np.uint8)

    def _drop_unused(self) -> None:
        # With the lock.
        for key in [key for key, held in self._held.items() if not held.users] if self._is_full() else []:
            if not self._is_full():
                break
            held = self._held.pop(key)
            self._held_bytes -= len(held.data)
            self._recycle(held)

    def _is_full(self) -> bool:
        return self._held_bytes > self.room and len(self._held) > 1

    def _recycle(self, held: _Held) -> None:
        if held.memory.size >= _LARGE_BYTES and self.holds_shards:
            self._spare.append(held.memory)
