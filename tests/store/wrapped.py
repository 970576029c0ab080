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

    def get(self, key: str, *, max_bytes: int) -> bytes:
        return self.store.get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        return self.store.head(key)

    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        return self.store.create(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self.store.delete(keys)

    def close(self) -> None:
        self.store.close()

    def clock(self) -> datetime:
        return self.store.clock()


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
