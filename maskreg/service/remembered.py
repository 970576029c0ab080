"""A bounded LRU cache of immutable facts, for many threads."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from cachetools import LRUCache

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """At most ``most`` values by key; the least recently used one goes first."""

    def __init__(self, most: int) -> None:
        self._values: LRUCache[Key, Value] = LRUCache(most)
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key; None without one."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> Value:
        """Keep a value in place of an earlier one, and give it back."""
        with self._lock:
            self._values[key] = value
        return value

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None
