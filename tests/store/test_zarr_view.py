"""Zarr's own suite for stores, over the stores that need no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

from maskreg.errors import LimitError
from maskreg.store.file import FileStore
from maskreg.store.memory import MemoryStore
from maskreg.store.zarr_view import ZarrView

BELOW = "artifacts/a/data.zarr/"


class ViewTests(StoreTests[ZarrView, cpu.Buffer]):
    store_cls = ZarrView
    buffer_cls = cpu.Buffer

    async def set(self, store: ZarrView, key: str, value: Buffer) -> None:
        store._store.put(BELOW + key, value.to_bytes())

    async def get(self, store: ZarrView, key: str) -> Buffer:
        return cpu.Buffer.from_bytes(store._store.get(BELOW + key, max_bytes=1 << 20))

    def test_store_repr(self, store: ZarrView) -> None:
        assert BELOW in repr(store)

    def test_store_supports_writes(self, store: ZarrView) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: ZarrView) -> None:
        assert store.supports_listing

    # This suite's three pieces of a synchronous protocol that no caller of ours uses are left out,
    # rather than skipped: the view is asynchronous only.
    test_get_sync = test_get_sync_missing = test_set_sync = None  # type: ignore[assignment]
    test_delete_sync = test_delete_sync_missing = None  # type: ignore[assignment]


class TestOverMemory(ViewTests):
    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"store": MemoryStore(), "prefix": BELOW}


class TestOverFiles(ViewTests):
    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"store": FileStore(tmp_path), "prefix": BELOW}


def test_views_of_two_prefixes_do_not_see_each_other() -> None:
    store = MemoryStore()
    values = np.arange(1000, dtype=np.uint8)
    for prefix in ("a/", "a-b/", ""):
        array = zarr.create_array(ZarrView(store, prefix), shape=1000, chunks=(100,), dtype="u1", name="mask")
        array[:] = values
        np.testing.assert_array_equal(zarr.open_array(ZarrView(store, prefix), path="mask")[:], values)
    assert sum(info.key.startswith("a/") for info in store.list("")) == 12


def test_objects_larger_than_the_limit_are_refused() -> None:
    store = MemoryStore()
    store.put("zarr.json", b"x" * 11)
    with pytest.raises(LimitError, match="the limit is 10"):
        zarr.open_array(ZarrView(store, max_bytes=10), mode="r")
