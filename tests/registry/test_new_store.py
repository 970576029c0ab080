"""The recipe for a store, walked: one class and one line in the table, and a registry works on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from maskreg.digest import Digest
from maskreg.errors import LimitError, NotFoundError
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import remove
from maskreg.registry.verify import verify
from maskreg.settings import Remote
from maskreg.store import STORES, ObjectInfo, Store
from maskreg.store.probe import probe
from tests.registry.conftest import REF


class DictStore(Store):
    """A new store, as ``maskreg/store/<name>.py`` would define it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, tuple[bytes, datetime]] = {}

    def get(self, key: str, *, max_bytes: int) -> bytes:
        if key not in self.objects:
            raise NotFoundError(f"{self.url}: there is no {key}")
        if len(self.objects[key][0]) > max_bytes:
            raise LimitError(key)
        return self.objects[key][0]

    def head(self, key: str) -> ObjectInfo | None:
        found = self.objects.get(key)
        return ObjectInfo(key, len(found[0]), found[1]) if found else None

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = bytes(data), self.clock()

    def create(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, (mine := bytes(data), self.clock()))[0] is mine

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        rows = sorted((key, len(data), at) for key, (data, at) in self.objects.items() if key.startswith(prefix))
        return (ObjectInfo(*row) for row in rows)

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self.objects.pop(key, None)

    def close(self) -> None:
        pass

    def clock(self) -> datetime:
        return datetime.now(UTC)


def test_a_new_store_holds_a_registry(
    local: Registry, empty: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DictStore("dict://lab")
    monkeypatch.setitem(STORES, "dict", lambda url, options: store)
    with Registry.remote(Remote("lab", store.url)) as remote:
        assert probe(remote.store).safe
        assert push(local, remote, REF).digest == digest
        assert pull(empty, remote, REF).resolved.digest == digest
        assert verify(remote).damaged == ()
        remove(remote, REF)
        assert [gone.digest for gone in collect(remote, timedelta(0)).collected] == [digest]
