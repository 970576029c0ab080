"""A store that stops at its k-th operation: to let another process run, or for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from maskreg.store import ObjectInfo, Store


class Killed(BaseException):
    """The process is gone; nothing catches this."""


class Steps(Store):
    """Passes every operation on, and calls ``then`` just before number ``at`` (counted from 0).

    When ``dies`` is set the store does nothing from that operation on: its user was killed.
    """

    def __init__(
        self, inner: Store, *, at: int = -1, then: Callable[[], object] | None = None, dies: bool = False
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self.at = at
        self.then = then
        self.dies = dies
        self.done = 0

    def _step(self) -> None:
        number, self.done = self.done, self.done + 1
        if number == self.at and self.then is not None:
            self.then()
        if self.dies and number >= self.at:
            raise Killed

    def get(self, key: str, *, max_bytes: int) -> bytes:
        self._step()
        return self.inner.get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        self._step()
        return self.inner.head(key)

    def put(self, key: str, data: bytes) -> None:
        self._step()
        self.inner.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._step()
        return self.inner.create(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._step()
        return iter(list(self.inner.list(prefix)))

    def delete(self, keys: Iterable[str]) -> None:
        # Key by key, as a store does that stops in the middle.
        for key in keys:
            self._step()
            self.inner.delete([key])

    def close(self) -> None:
        self.inner.close()

    def clock(self) -> datetime:
        return self.inner.clock()
