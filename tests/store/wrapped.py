"""A store around another one, for tests that make single methods misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from maskreg.store import ObjectInfo, Store


class Wrapped(Store):
    """Passes everything on; subclasses override what they want to go wrong."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url

    def _step(self) -> None:
        """Called before each operation."""

    def get(self, key: str, *, max_bytes: int) -> bytes:
        self._step()
        return self.store.get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        self._step()
        return self.store.head(key)

    def put(self, key: str, data: bytes) -> None:
        self._step()
        self.store.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._step()
        return self.store.create(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._step()
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._step()
        self.store.delete(keys)

    def close(self) -> None:
        self.store.close()

    def clock(self) -> datetime:
        return self.store.clock()


class Killed(BaseException):
    """The process is gone; nothing catches this."""


class Steps(Wrapped):
    """Calls ``then`` just before operation number ``at`` (counted from 0), to let another process run.

    When ``dies`` is set the store does nothing from that operation on: its user was killed.
    """

    def __init__(
        self, store: Store, *, at: int = -1, then: Callable[[], object] | None = None, dies: bool = False
    ) -> None:
        super().__init__(store)
        self.at, self.then, self.dies = at, then, dies
        self.done = 0

    def _step(self) -> None:
        number, self.done = self.done, self.done + 1
        if number == self.at and self.then is not None:
            self.then()
        if self.dies and number >= self.at:
            raise Killed

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(list(super().list(prefix)))

    def delete(self, keys: Iterable[str]) -> None:
        # Key by key, as a store does that stops in the middle.
        for key in keys:
            super().delete([key])


class Censored(Wrapped):
    """Its listings of one prefix leave out some keys; reads by key show everything."""

    def __init__(
        self, store: Store, prefix: str, hidden: Callable[[str], bool], *, first: int = 0, last: int = 10**9
    ) -> None:
        """Hide keys from listings ``first`` to ``last - 1`` of the prefix, counted from 0."""
        super().__init__(store)
        self.prefix = prefix
        self.hidden = hidden
        self.hides = range(first, last)
        self.listed = 0

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        infos = super().list(prefix)
        if not prefix.startswith(self.prefix):
            return infos
        number, self.listed = self.listed, self.listed + 1
        return (info for info in infos if number not in self.hides or not self.hidden(info.key))
