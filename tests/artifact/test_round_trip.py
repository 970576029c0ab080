"""What is written is what is read, by this reader and by others."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorstore

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.artifact.writer import ArtifactWriter
from maskreg.digest import Digest, leaf_hashes
from maskreg.errors import CorruptError, PartAbsentError
from maskreg.mask import packed_bytes, unpack
from maskreg.store.file import FileStore
from maskreg.tensors.info import BLOCK_NUMEL
from tests.artifact.making import Pair, pair, write
from tests.checkpoints import flip


def open_at(root: Path, digest: Digest) -> Artifact:
    return Artifact.open(FileStore(root), digest)


def check(artifact: Artifact, tensors: Pair) -> None:
    codec = artifact.codec("delta")
    assert [t.name for t in artifact.tensors] == list(tensors)
    for row in artifact.tensors:
        source, target = tensors[row.name]
        assert np.array_equal(artifact.mask[row.name].to_bool(), (source != target) & ((source | target) & 0x7FFF != 0))
        for i in range(row.blocks):
            run = slice(i * BLOCK_NUMEL, (i + 1) * BLOCK_NUMEL)
            one, other = source.reshape(-1)[run], target.reshape(-1)[run]
            assert np.array_equal(codec.decode(one, artifact.block("delta", row.first_block + i)), other)
            assert np.array_equal(codec.decode(other, artifact.block("reverse", row.first_block + i)), one)
        leaves = artifact.leaves(row)
        assert np.array_equal(leaves[0], leaf_hashes(source))
        assert np.array_equal(leaves[1], leaf_hashes(target))


def test_everything_comes_back(tmp_path: Path) -> None:
    tensors = pair()
    digest = write(tmp_path, tensors, files={"config.json": b"{}"})
    artifact = open_at(tmp_path, digest)
    check(artifact, tensors)
    assert artifact.files() == {"config.json": b"{}"}
    assert artifact.present() == {"mask", "delta", "reverse"}
    assert artifact.verify() == {"mask", "delta", "reverse"}
    assert artifact.manifest.totals.numel == sum(s.size for s, _ in tensors.values())
    assert artifact.manifest.totals.nnz == sum(m.nnz for m in artifact.mask.values())
    assert not list((tmp_path / "staging").iterdir())


def test_a_tensor_that_stays_has_no_blocks(tmp_path: Path) -> None:
    long = np.zeros(BLOCK_NUMEL + 64, np.uint16)
    moved = long.copy()
    moved[-1] = 1
    tensors = pair() | {"stays": (long, long), "moves": (long, moved), "stays too": (long[:9], long[:9])}
    artifact = open_at(tmp_path, write(tmp_path, tensors))
    check(artifact, tensors)
    by_name = artifact.by_name
    assert [by_name[name].blocks for name in ("stays", "moves", "stays too", "none")] == [0, 2, 0, 0]


def test_larger_than_a_block_and_a_shard(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 1 << 16, 2 * BLOCK_NUMEL + 70, np.uint16)
    tensors: Pair = {"a": (source, source ^ rng.integers(0, 1 << 16, source.size, np.uint16)), **pair()}
    digest = write(tmp_path, tensors)
    artifact = open_at(tmp_path, digest)
    assert any(o.key == "data.zarr/delta/c/1" for o in artifact.manifest.objects)
    assert max(o.size for o in artifact.manifest.objects) < 17 << 20
    check(artifact, tensors)
    run = artifact.mask_bits(artifact.by_name["a"], 64_000, 64_100)
    assert np.array_equal(unpack(run, 100), (tensors["a"][0] != tensors["a"][1])[64_000:64_100])


@pytest.mark.parametrize("fraction", [0.001, 0.4])
def test_without_room_for_shards_chunks_are_read(tmp_path: Path, fraction: float) -> None:
    rng = np.random.default_rng(0)
    source = np.arange(17 << 20, dtype=np.uint32).astype(np.uint16)
    tensors: Pair = {"a": (source, source ^ (rng.random(source.size, np.float32) < fraction)), **pair()}
    digest = write(tmp_path, tensors, parts=("mask",))
    artifact, roomy = open_at(tmp_path, digest), open_at(tmp_path, digest)
    artifact.hold_at_most(0)
    row = artifact.by_name["a"]
    for start in (0, 1 << 20, 16 << 20, 8 << 20):
        assert np.array_equal(artifact.mask_bits(row, start, start + 5000), roomy.mask_bits(row, start, start + 5000))
    assert np.array_equal(artifact.leaves(row), roomy.leaves(row))
    # Of a shard that was hashed before, each chunk is checked when it is read again.
    (shard,) = (path for path in (tmp_path / artifact_prefix(digest) / "data.zarr/mask").rglob("*") if path.name == "0")
    flip(shard, 100)
    with pytest.raises(CorruptError, match=r"data.zarr/mask/c/0"):
        artifact.mask_bits(row, 0, 64)
    again = open_at(tmp_path, digest)
    again.hold_at_most(0)
    with pytest.raises(CorruptError, check=lambda error: error.facts["artifact"] == digest):
        again.mask_bits(row, 0, 64)


@pytest.mark.parametrize("fraction", [0.001, 0.4])
def test_any_zarr_reader_opens_the_mask(tmp_path: Path, fraction: float) -> None:
    rng = np.random.default_rng(1)
    source = rng.integers(1, 1 << 15, 900_001, np.uint16)
    tensors: Pair = {"big": (source, (source ^ (rng.random(source.size) < fraction)).astype(np.uint16)), **pair()}
    digest = write(tmp_path, tensors)
    folder = tmp_path / artifact_prefix(digest)
    with_zarr = np.asarray(open_at(tmp_path, digest).zarr_group["mask"][:])  # type: ignore[index]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "data.zarr" / "mask")}}
    with_tensorstore = tensorstore.open(spec, read=True).result().read().result()
    assert np.array_equal(with_zarr, with_tensorstore)
    compressed = "zstd" in (folder / "data.zarr/mask/zarr.json").read_text()
    assert compressed == (fraction < 0.1)
    rows = {t["name"]: t for t in json.loads((folder / "tensors.json").read_bytes())["tensors"]}
    for name, (one, other) in tensors.items():
        start = rows[name].get("bit_offset", 0) // 8
        bits = unpack(with_tensorstore[start : start + packed_bytes(one.size)], one.size)
        assert np.array_equal(bits.reshape(one.shape), (one != other) & ((one | other) & 0x7FFF != 0))


def test_zarr_opens_what_was_verified(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    shard = tmp_path / artifact_prefix(digest) / "data.zarr/mask/c/0"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    with pytest.raises(CorruptError):
        _ = open_at(tmp_path, digest).zarr_group
    shard.unlink()
    with pytest.raises(CorruptError):
        _ = open_at(tmp_path, digest).zarr_group


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ArtifactWriter(tmp_path, {"mask"}):
        raise RuntimeError
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_parts_are_there_or_absent(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    for path in (tmp_path / artifact_prefix(digest) / "data.zarr").glob("delta*/**/*"):
        if path.is_file():
            path.unlink()
    artifact = open_at(tmp_path, digest)
    assert artifact.present() == {"mask", "reverse"}
    assert artifact.verify() == {"mask", "reverse"}
    with pytest.raises(PartAbsentError) as caught:
        artifact.require("delta")
    assert caught.value.facts["not_pulled"] == "delta"
    with pytest.raises(PartAbsentError, match="reverse"):
        open_at(tmp_path, write(tmp_path, pair(), parts=("mask", "delta"))).require("reverse")


def test_writing_again_heals_what_is_there(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    folder = tmp_path / artifact_prefix(digest)
    (folder / "data.zarr/delta/c/0").unlink()
    (folder / "tensors.json").write_bytes(b"{}")
    assert write(tmp_path, pair()) == digest
    check(open_at(tmp_path, digest), pair())
    assert open_at(tmp_path, digest).verify() == {"mask", "delta", "reverse"}
    assert [p for p in tmp_path.rglob("*") if "incoming" in p.parts and p.is_file()] == []
