"""Documents from outside: what a forged but self-consistent artifact must not do."""

import json
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from maskreg.artifact.layout import ArrayLayout, artifact_prefix
from maskreg.artifact.manifest import load_manifest
from maskreg.artifact.reader import Artifact
from maskreg.artifact.shards import check_shard, pack_frame
from maskreg.artifact.tensors import load_tensors
from maskreg.digest import Digest
from maskreg.document import canonical
from maskreg.errors import CorruptError, DataError, FormatError, LimitError
from maskreg.extras import upgrade_command
from maskreg.store.file import FileStore
from tests.artifact.making import agree, pair, write
from tests.limited import limited


def forge(root: Path, digest: Digest, change: dict[str, bytes], edit: Any = None) -> Digest:
    """Replace objects (None deletes) and make a manifest that agrees with them, as a hostile publisher would."""
    store, prefix = FileStore(root), artifact_prefix(digest)
    manifest = json.loads(store.get(prefix + "manifest.json", max_bytes=1 << 22))
    objects = {o["key"]: store.get(prefix + o["key"], max_bytes=1 << 27) for o in manifest["objects"]} | change
    objects = {key: data for key, data in objects.items() if data is not None}
    agree(manifest, objects)
    if edit:
        edit(manifest)
    data = canonical(manifest)
    forged = Digest.of(data)
    for key, value in objects.items():
        if ".." not in key:
            store.put(artifact_prefix(forged) + key, value)
    store.put(artifact_prefix(forged) + "manifest.json", data)
    return forged


def use(root: Path, digest: Digest) -> None:
    artifact = Artifact.open(FileStore(root), digest)
    artifact.verify()
    for row in artifact.tensors:
        artifact.leaves(row)
        if row.numel:
            artifact.mask[row.name].to_bool()
        for i in range(row.blocks):
            artifact.block("delta", row.first_block + i)


def tensors_of(root: Path, digest: Digest) -> dict[str, Any]:
    data = FileStore(root).get(artifact_prefix(digest) + "tensors.json", max_bytes=1 << 20)
    table: dict[str, Any] = json.loads(data)
    return table


EDITS: dict[str, tuple[str, Any]] = {
    "offset beyond": ("bit_offset", 1 << 40),
    "negative": ("bit_offset", -64),
    "huge numel": ("numel", 1 << 62),
    "more blocks": ("blocks", 5),
    "shape": ("source_shape", [1 << 45]),
    "nnz": ("nnz", 1 << 30),
    "float count": ("numel", 2145.0),
    "text count": ("numel", "2145"),
    "control name": ("name", "a\n\0b"),
    "terminal control": ("name", "a\u009b2J"),
    "no name": ("name", ""),
    "no unicode": ("name", "\ud800"),
    "long name": ("name", "x" * 2000),
    "twice": ("name", "model.norm.weight"),
    "leaves": ("leaves", 7),
    "infinite": ("energy", 1e999),
    "negative energy": ("energy", -1.0),
    "role with a control": ("role", "ffn\x1b[2J"),
    "unknown role": ("role", "core"),
    "layer with a control": ("layer", "0\n1"),
    "dtype": ("source_dtype", "BF17"),
    "fingerprint": ("target_fingerprint", "x"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_forged_tensor_tables_are_refused(tmp_path: Path, edit: str) -> None:
    digest = write(tmp_path, pair())
    table = tensors_of(tmp_path, digest)
    field, value = EDITS[edit]
    table["tensors"][0][field] = value
    data = json.dumps(table).encode()
    with pytest.raises(DataError) as caught:
        use(tmp_path, forge(tmp_path, digest, {"tensors.json": data}))
    assert caught.value.message.isprintable()


def test_names_that_look_like_paths_are_only_names(tmp_path: Path) -> None:
    tensors = {"../../etc/x": pair()["scale"], "/abs": pair()["none"], "a//b": pair()["model.norm.weight"]}
    use(tmp_path / "root", write(tmp_path / "root", tensors))
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


META_EDITS: dict[str, Any] = {
    "shape": lambda m: m.update(shape=[1 << 45]),
    "negative": lambda m: m.update(shape=[-1]),
    "dtype": lambda m: m.update(data_type="float64"),
    "fill": lambda m: m.update(fill_value=1),
    "codec": lambda m: m["codecs"][0]["configuration"]["codecs"].insert(0, {"name": "numcodecs.pickle"}),
    "blosc": lambda m: m["codecs"][0]["configuration"]["codecs"].insert(1, {"name": "blosc"}),
    "outer": lambda m: m.update(codecs=[{"name": "bytes"}]),
    "two": lambda m: m["codecs"].append({"name": "crc32c"}),
    "chunks": lambda m: m["chunk_grid"]["configuration"].update(chunk_shape=[1 << 40]),
    "zero": lambda m: m["codecs"][0]["configuration"].update(chunk_shape=[0]),
    "no sum": lambda m: m["codecs"][0]["configuration"].update(codecs=[{"name": "bytes"}]),
    "group": lambda m: m.update(node_type="group"),
    "format": lambda m: m.update(zarr_format=2),
    "missing": lambda m: m.pop("codecs"),
    "keys": lambda m: m.update(chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}}),
    "transform": lambda m: m.update(storage_transformers=[{"name": "x"}]),
    "sharding key": lambda m: m["codecs"][0]["configuration"].update(novelty=1),
    "dimension names": lambda m: m.update(dimension_names=[1, 2, 3]),
    "must understand": lambda m: m.update(extension={"must_understand": True}),
    "attributes": lambda m: m.update(attributes={"x": 1}),
    "true for one": lambda m: m.update(fill_value=False),
    "float format": lambda m: m.update(zarr_format=3.0),
    "index first": lambda m: m["codecs"][0]["configuration"].update(index_location="start"),
    "index endian": lambda m: m["codecs"][0]["configuration"]["index_codecs"][0]["configuration"].update(endian="big"),
    "smaller chunks": lambda m: m["codecs"][0]["configuration"].update(chunk_shape=[1, 2, 16][: len(m["shape"])]),
    "longer": lambda m: m["shape"].__setitem__(0, m["shape"][0] + 1),
    "list": lambda m: m.update(codecs={}),
    "nothing": lambda m: m.clear(),
}


@pytest.mark.parametrize("array", ["mask", "leaves"])
@pytest.mark.parametrize("edit", META_EDITS)
def test_forged_array_metadata_is_refused(tmp_path: Path, edit: str, array: str) -> None:
    digest = write(tmp_path, pair())
    key = f"data.zarr/{array}/zarr.json"
    meta = json.loads(FileStore(tmp_path).get(artifact_prefix(digest) + key, max_bytes=1 << 16))
    META_EDITS[edit](meta)
    with pytest.raises(DataError):
        use(tmp_path, forge(tmp_path, digest, {key: json.dumps(meta).encode()}))


@pytest.mark.parametrize(
    "key", ["data.zarr/mask/c/0", "data.zarr/delta/c/0", "data.zarr/leaves/c/0/0/0", "tensors.json"]
)
def test_a_manifest_that_lists_less_never_reads_as_zeros(tmp_path: Path, key: str) -> None:
    digest = write(tmp_path, pair())
    with pytest.raises(DataError):
        use(tmp_path, forge(tmp_path, digest, {key: None}))  # type: ignore[dict-item]


KEYS = [
    f"files/{'x' * 300}",
    "../x",
    "data.zarr/../../x",
    "/abs",
    "data.zarr//x",
    "files/a\\b",
    "files/\x00",
    "other/x",
    "doomed",
    "",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_stay_inside(tmp_path: Path, key: str) -> None:
    digest = write(tmp_path / "root", pair())

    def edit(manifest: dict[str, Any]) -> None:
        manifest["objects"].append({"key": key, "size": 1, "sha256": "sha256:" + "0" * 64})
        manifest["objects"].sort(key=lambda o: o["key"])

    with pytest.raises(DataError):
        use(tmp_path / "root", forge(tmp_path / "root", digest, {}, edit))
    assert [p.name for p in tmp_path.iterdir()] == ["root"]


def test_objects_of_parts_that_the_manifest_lacks_are_refused(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    forged = forge(tmp_path, digest, {}, lambda manifest: manifest["parts"].pop("reverse"))
    with pytest.raises(FormatError, match="/reverse/"):
        Artifact.open(FileStore(tmp_path), forged)


def test_limits_hold_before_anything_is_parsed(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    store = FileStore(tmp_path)
    for name, bound in {
        "tensors": 2,
        "objects": 3,
        "object_bytes": 100,
        "zarr_json_bytes": 10,
        "name_bytes": 3,
    }.items():
        with limited(**{name: bound}), pytest.raises(LimitError):
            _ = Artifact.open(store, digest).mask["scale"]
    deep = b"[" * 100_000
    with pytest.raises(LimitError):
        load_manifest(deep, Digest.of(deep))
    with pytest.raises(FormatError, match="Expected `object`"):
        load_tensors(deep)


def test_other_schemas_are_refused_with_advice(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    with pytest.raises(FormatError, match="schema") as caught:
        use(tmp_path, forge(tmp_path, digest, {}, lambda m: m.update(schema="maskreg.artifact/2")))
    assert caught.value.hint == upgrade_command()


def test_unknown_keys_are_ignored_but_covered(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    newer = forge(tmp_path, digest, {}, lambda m: m.update(novelty=1))
    assert newer != digest
    use(tmp_path, newer)


def shard(stored: bytes, index: list[int], *, right: bool = True) -> bytes:
    """A shard of one chunk with any index; its checksums fit, or the chunk's does not."""
    entries = np.array(index, "<u8").tobytes()
    return stored + checksum(stored, right) + entries + checksum(entries)


def checksum(data: bytes, right: bool = True) -> bytes:
    return int(google_crc32c.value(data) ^ (not right)).to_bytes(4, "little")


def test_a_shard_must_hold_its_chunks_and_nothing_else() -> None:
    layout, key = ArrayLayout("mask", 64, compressed=True), "data.zarr/mask/c/0"
    frames = {size: pack_frame(np.zeros(size, np.uint8), 1) for size in (64, 1 << 26)}
    index = [0, len(frames[64]) + 4]
    check_shard(layout, key, shard(frames[64], index))
    check_shard(layout, "data.zarr/mask/c/1", shard(b"", [(1 << 64) - 1] * 2))
    plain = bytes(range(64))
    check_shard(ArrayLayout("mask", 64), key, shard(plain, [0, 68]))
    for form, data, message in (
        (layout, shard(frames[1 << 26], [0, len(frames[1 << 26]) + 4]), "announce 64"),
        (layout, shard(b"", [(1 << 64) - 1] * 2), "a chunk is absent"),
        (layout, shard(frames[64], [5, 1 << 60]), "outside"),
        (layout, shard(frames[64], index, right=False), "checksum of a chunk"),
        (layout, shard(frames[64], index)[:-1] + b"\0", "checksum of its index"),
        (layout, b"\0" * 19, "too short"),
        (ArrayLayout("mask", 64), shard(plain[1:], [0, 67]), "announce 64"),
        (ArrayLayout("mask", 64), shard(plain, [0, 2]), "announce 64"),
    ):
        with pytest.raises(CorruptError, match=message):
            check_shard(form, key, data)
