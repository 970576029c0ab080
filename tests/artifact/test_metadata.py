"""Array metadata: the one document for each array, which is what Zarr writes, and nothing else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import MemoryStore

from maskreg.artifact.arrays import GrowingArray
from maskreg.artifact.layout import (
    ARRAYS,
    SHARD_BYTES,
    ArrayLayout,
    check_array,
    check_group,
    dump_metadata,
    group_document,
)
from maskreg.artifact.manifest import SCHEMA, Object
from maskreg.artifact.staging import StagingStore
from maskreg.artifact.storing import ShardStorer
from maskreg.digest import Digest
from maskreg.errors import FormatError


def by_zarr(values: np.ndarray, layout: ArrayLayout) -> dict[str, bytes]:
    """Objects of a group with one array, as Zarr writes them, appended to a shard at a time."""
    objects: dict[str, Any] = {}
    group = zarr.open_group(MemoryStore(objects), mode="w", zarr_format=3, attributes={"schema": SCHEMA})
    shard_rows = layout.chunk_rows * layout.chunks_per_shard
    array: Any = group.create_array(
        layout.name,
        shape=(0, *layout.form.row),
        chunks=(layout.chunk_rows, *layout.form.row),
        shards=(shard_rows, *layout.form.row),
        dtype=values.dtype,
        filters=None,
        compressors=[*([ZstdCodec(level=1, checksum=True)] if layout.compressed else []), Crc32cCodec()],
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    for start in range(0, len(values), shard_rows):
        rows = values[start : start + shard_rows]
        array.resize((start + len(rows), *layout.form.row))
        array[start:] = rows
    return {key: value.to_bytes() for key, value in objects.items()}


def written(values: np.ndarray, name: str, compress: bool, folder: Path) -> tuple[StagingStore, ArrayLayout]:
    """The same array as artifacts store it, appended to in uneven pieces."""
    folder.mkdir()
    store = StagingStore(folder, folder)
    storer = ShardStorer(store, jobs=2)
    array = GrowingArray(storer, name, compress=compress)
    for start in range(0, max(1, len(values)), 300_007):
        array.append(values[start : start + 300_007])
    array.finish()
    storer.finish()
    storer.close()
    return store, array.layout


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("part_of_a_shard", [0, 1e-6, 0.03, 0.7, 1, 2.3])
def test_it_is_what_zarr_writes(name: str, part_of_a_shard: float, tmp_path: Path) -> None:
    rows = int(SHARD_BYTES // ArrayLayout(name, 0).row_bytes * part_of_a_shard)
    form = ARRAYS[name]
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, rows * ArrayLayout(name, 0).row_bytes, np.uint8)
    values = values.view(form.dtype).reshape(rows, *form.row)
    for compress in {False, form.compressible}:
        if compress:
            values = values & 3
        store, layout = written(values, name, compress, tmp_path / str(compress))
        assert layout.length == rows
        assert layout.compressed == (compress and rows > 100)
        objects = by_zarr(values, layout)
        stored = objects[f"{name}/zarr.json"]
        assert dump_metadata(layout.document()) == packed(stored)
        assert check_array(stored, name, rows) == layout
        keys = [layout.shard_key(n) for n in range(layout.shards)]
        assert keys == sorted(f"data.zarr/{key}" for key in objects if "/c/" in key) == sorted(store.written)
        for key in keys:
            data = store.get(key, max_bytes=1 << 30)
            assert data == objects[key.removeprefix("data.zarr/")]
            assert store.written[key] == Object(key=key, size=len(data), sha256=str(Digest.of(data)))
        assert zarr.open_array(MemoryStore({"zarr.json": _buffer(stored)}), mode="r").shape[0] == rows
    assert dump_metadata(group_document(SCHEMA)) == packed(objects["zarr.json"])
    check_group(objects["zarr.json"], SCHEMA)


def packed(document: bytes) -> bytes:
    """A document of Zarr without white space, with its keys in their order."""
    return json.dumps(json.loads(document), separators=(",", ":")).encode()


def _buffer(data: bytes) -> Any:
    return zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)


@pytest.mark.parametrize("name", ["delta", "leaves"])
def test_only_the_mask_may_be_compressed(name: str) -> None:
    frames = dump_metadata(ArrayLayout(name, 5, compressed=True).document())
    with pytest.raises(FormatError, match="codecs"):
        check_array(frames, name, 5)
    assert check_array(dump_metadata(ArrayLayout("mask", 5, compressed=True).document()), "mask", 5).compressed
