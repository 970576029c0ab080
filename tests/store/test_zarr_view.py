"""What Zarr reads through a view is what it wrote to a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype

from maskreg.errors import LimitError
from maskreg.store import FileStore
from maskreg.store.zarr_view import ZarrView
from tests.store.memory import MemoryStore


def test_arrays_are_read_and_not_written(tmp_path: Path) -> None:
    values = np.arange(1000, dtype=np.uint8)
    for prefix in ("a", "a-b"):
        group = zarr.create_group(tmp_path / prefix)
        group.create_array("mask", shape=1000, chunks=(10,), shards=(100,), dtype="u1")[:] = values
    view = ZarrView(FileStore(tmp_path), "a/")
    group = zarr.open_group(view, mode="r")
    assert list(group.array_keys()) == ["mask"]
    np.testing.assert_array_equal(group["mask"][:], values)  # type: ignore[index]
    np.testing.assert_array_equal(group["mask"][105:115], values[105:115])  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        asyncio.run(view.set("x", cpu.Buffer.from_bytes(b"x")))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (None, b"0123456789"),
        (RangeByteRequest(2, 4), b"23"),
        (OffsetByteRequest(7), b"789"),
        (SuffixByteRequest(3), b"789"),
    ],
)
def test_ranges_are_cut_out_of_objects(part: object, expected: bytes) -> None:
    store = MemoryStore()
    store.put("a/b/x", b"0123456789")
    view = ZarrView(store, "a/")
    buffer = asyncio.run(view.get("b/x", default_buffer_prototype(), part))  # type: ignore[arg-type]
    assert buffer is not None and buffer.to_bytes() == expected
    assert asyncio.run(view.get("b/y")) is None

    async def names() -> list[list[str]]:
        listings = (view.list(), view.list_prefix("b"), view.list_dir(""), view.list_dir("b"))
        return [[name async for name in listing] for listing in listings]

    assert asyncio.run(names()) == [["b/x"], ["b/x"], ["b"], ["x"]]


def test_objects_larger_than_the_limit_are_refused() -> None:
    store = MemoryStore()
    store.put("zarr.json", b"x" * 11)
    with pytest.raises(LimitError, match="the limit is 10"):
        zarr.open_array(ZarrView(store, max_bytes=10), mode="r")
