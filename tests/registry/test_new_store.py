"""The recipe of CONTRIBUTING for a store, walked: one class and one line in the table, and a registry works on it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from maskreg.digest import Digest
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import remove
from maskreg.registry.verify import verify
from maskreg.settings import Remote
from maskreg.store import STORES
from maskreg.store.probe import probe
from tests.registry.conftest import REF
from tests.store.memory import MemoryStore


def test_a_new_store_holds_a_registry(
    local: Registry, empty: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setitem(STORES, "memory", lambda url, options: store)
    with Registry.remote(Remote("lab", store.url)) as remote:
        assert probe(remote.store).safe
        assert push(local, remote, REF).digest == digest
        assert pull(empty, remote, REF).resolved.digest == digest
        assert verify(remote).damaged == ()
        remove(remote, REF)
        assert [gone.digest for gone in collect(remote, timedelta(0)).collected] == [digest]
