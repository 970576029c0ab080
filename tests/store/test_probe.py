from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from maskreg.errors import ConfigError, CorruptError, NotAllowedError
from maskreg.store import ObjectInfo
from maskreg.store.probe import Probe, probe
from tests.store.memory import MemoryStore
from tests.store.wrapped import Wrapped


class IgnoresConditions(Wrapped):
    def create(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


class RefusesConditions(Wrapped):
    def create(self, key: str, data: bytes) -> bool:
        raise ConfigError("the service does not support create-only writes")


class ListsNothing(Wrapped):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())


class Denies(Wrapped):
    """Credentials that lack some permissions."""

    def __init__(self, *denied: str) -> None:
        super().__init__(MemoryStore())
        self.denied = denied

    def _check(self, permission: str) -> None:
        if permission in self.denied:
            raise NotAllowedError(f"{permission} was refused")

    def get(self, key: str, *, max_bytes: int) -> bytes:
        self._check("get")
        return super().get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        self._check("get")
        return super().head(key)

    def put(self, key: str, data: bytes) -> None:
        self._check("put")
        super().put(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check("list")
        return super().list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._check("delete")
        super().delete(keys)


def test_a_store_that_may_only_be_read_is_not_written_to() -> None:
    probed = probe(Denies("put"))
    assert (probed.writable, probed.create_only, probed.safe) == (False, "untried", False)
    assert "s3:PutObject" in probed.reason


@pytest.mark.parametrize("denied", ["get", "list"])
def test_a_store_that_may_not_be_read_either_is_refused(denied: str) -> None:
    with pytest.raises(NotAllowedError, match=" put "):
        probe(Denies("put", denied))


def test_stores_that_do_not_keep_their_word_are_told_and_left_empty() -> None:
    store = MemoryStore()
    found = probe(IgnoresConditions(store))
    assert (found.create_only, found.safe) == ("unsafe", False)
    assert found.reason
    assert list(store.list("")) == []
    unsupported = Probe("unsupported", "the service does not support create-only writes")
    assert probe(RefusesConditions(store)) == unsupported
    assert list(store.list("")) == []
    with pytest.raises(CorruptError, match="written"):
        probe(ListsNothing(store))
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("method", "permission"), [("get", "s3:GetObject"), ("list", "s3:ListBucket"), ("delete", "s3:DeleteObject")]
)
def test_a_missing_permission_is_named(method: str, permission: str) -> None:
    with pytest.raises(NotAllowedError, match=f" {method} .*{permission}"):
        probe(Denies(method))
