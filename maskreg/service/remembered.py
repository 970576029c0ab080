"""What a process remembers of what stays true, so much at most."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Values by key; beyond the most, the one that was used longest ago is forgotten. Safe to use from many threads."""

    def __init__(self, most: int) -> None:
        """Remember nothing yet.

        Args:
            most: values that are remembered at the same time.
        """
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which counts as used now; None when it was never put or is forgotten."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> Value:
        """Remember a value, and give it back; an earlier one of the same key is replaced."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None
