"""What a publisher states is computed again: on every reading from the table, with a recount from the mask."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec import to_builtins

from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.artifact.tensors import Tensor, load_tensors
from maskreg.artifact.totals import totals_of
from maskreg.digest import Digest
from maskreg.document import canonical
from maskreg.errors import DataError, FormatError
from maskreg.store.file import FileStore
from tests.artifact.making import pair, write
from tests.artifact.test_hostile import forge, tensors_of

Manifest = dict[str, Any]


def _set(path: str, value: object) -> Callable[[Manifest], None]:
    def edit(manifest: Manifest) -> None:
        *folders, last = path.split(".")
        for name in folders:
            manifest = manifest[name]
        manifest[last] = value

    return edit


FALSE: dict[str, tuple[str, object]] = {
    "lift": ("totals.ffn.density_lift", 1e308),
    "share": ("totals.ffn.mask_share", 0.99),
    "no share": ("totals.ffn.energy_share", None),
    "nnz": ("totals.nnz", 1),
    "energy": ("totals.energy", 0.0),
    "role": ("totals.roles", {"ffn": {"numel": 1, "nnz": 1}}),
    "layer": ("totals.layers", {}),
    "exact": ("exact", False),
    "exact rule": ("rule", "abs:1e-5"),
    "rule": ("rule", "magic"),
    "kind": ("kind", "mask"),
    "part size": ("parts.mask.size", 1),
    "part": ("parts", {}),
    "params": ("source.params", 7),
    "tensors": ("target.tensors", 7),
    "dtypes": ("target.dtypes", {"F32": 6697}),
    "root": ("source.root", str(Digest.of(b"another"))),
    "escape": ("source.hub", "org/\x1b[2Jname"),
    "right to left": ("encoder", "maskreg\u202e-3"),
    "escape below": ("recipe", {"note": ["fine", "\u009b2J"]}),
}


@pytest.mark.parametrize("case", FALSE)
def test_a_false_statement_of_a_manifest_is_refused(tmp_path: Path, case: str) -> None:
    digest = write(tmp_path, pair())
    forged = forge(tmp_path, digest, {}, _set(*FALSE[case]))
    assert forged != digest
    with pytest.raises(FormatError, match=r"^manifest\.json: "):
        Artifact.open(FileStore(tmp_path), forged)


def test_a_false_figure_is_named_with_both_values(tmp_path: Path) -> None:
    forged = forge(tmp_path, write(tmp_path, pair()), {}, _set("totals.nnz", 1))
    with pytest.raises(FormatError, match=r"totals\.nnz is stated as 1; the tensor table gives \d+") as caught:
        Artifact.open(FileStore(tmp_path), forged)
    assert "publish" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", "ffn\x1b[2J"),
        ("role", "core"),
        ("layer", "0\n1"),
        ("source_dtype", "BF17"),
        ("target_fingerprint", "x"),
        ("energy", -1.0),
    ],
)
def test_texts_and_numbers_of_the_table_come_from_the_format(tmp_path: Path, field: str, value: object) -> None:
    digest = write(tmp_path, pair())
    table = tensors_of(tmp_path, digest)
    table["tensors"][0][field] = value
    forged = forge(tmp_path, digest, {"tensors.json": canonical(table)})
    with pytest.raises(FormatError, match=r"^tensors\.json: ") as caught:
        Artifact.open(FileStore(tmp_path), forged)
    assert caught.value.message.isprintable()


def test_keys_that_no_store_takes_are_refused(tmp_path: Path) -> None:
    def edit(manifest: Manifest) -> None:
        manifest["objects"].append({"key": f"files/{'x' * 300}", "size": 1, "sha256": str(Digest.of(b"x"))})
        manifest["objects"].sort(key=lambda entry: entry["key"])

    forged = forge(tmp_path, write(tmp_path, pair()), {}, edit)
    with pytest.raises(FormatError, match="not a key of an artifact"):
        Artifact.open(FileStore(tmp_path), forged)


def _other_counts(root: Path, digest: Digest, nnz: int, **fields: object) -> Digest:
    """A forgery whose table and totals agree on a false count of the first tensor."""
    table = tensors_of(root, digest)
    row = table["tensors"][0]
    row.update(fields)
    row["nnz"] += nnz

    def edit(manifest: Manifest) -> None:
        manifest["totals"] = to_builtins(totals_of(load_tensors(canonical(table))))

    return forge(root, digest, {"tensors.json": canonical(table)}, edit)


def test_a_recount_finds_what_table_and_totals_agree_on(tmp_path: Path) -> None:
    digest = write(tmp_path, pair())
    store = FileStore(tmp_path)
    assert list(recount(Artifact.open(store, digest))) == []
    stated = tensors_of(tmp_path, digest)["tensors"][0]["nnz"]
    forged = Artifact.open(store, _other_counts(tmp_path, digest, 5))
    (fault,) = recount(forged)
    name = "'model.layers.0.mlp.up_proj.weight'"
    assert fault == f"{name}: the table states {stated + 5} moved coordinates; the mask has {stated}"


def test_a_recount_hashes_the_leaves(tmp_path: Path) -> None:
    digest = write(tmp_path, pair(), parts=("mask",))
    forged = _other_counts(tmp_path, digest, 0, target_fingerprint="0" * 32)
    (fault,) = recount(Artifact.open(FileStore(tmp_path), forged))
    assert fault.endswith("its target fingerprint does not follow from the stored leaf hashes")


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_recount_goes_through_the_tensors_in_order(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact.open(FileStore(tmp_path), write(tmp_path, pair()))
    read = artifact.leaves
    monkeypatch.setattr(artifact, "leaves", lambda row: tuple(side ^ 1 for side in read(row)))
    expected = [
        f"'{row.name}': its {side} fingerprint does not follow from the stored leaf hashes"
        for row in artifact.tensors
        for side, shape in (("source", row.source_shape), ("target", row.target_shape))
        if shape is not None and row.leaves
    ]
    assert len(expected) > 4
    assert list(recount(artifact, jobs=jobs)) == expected


def test_a_recount_sees_bits_behind_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact.open(FileStore(tmp_path), write(tmp_path, pair()))
    row, read = artifact.by_name["scale"], artifact.mask_bits

    def with_padding(of: Tensor, start: int = 0, stop: int | None = None) -> npt.NDArray[np.uint8]:
        bits = read(of, start, stop).copy()
        if of is row:
            bits[7] |= 0x80
        return bits

    monkeypatch.setattr(artifact, "mask_bits", with_padding)
    assert list(recount(artifact)) == ["'scale': padding bits of the mask that are not 0: 1"]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("data.zarr/mask/zarr.json", lambda meta: meta.update(shape=[meta["shape"][0] - 8])),
        ("data.zarr/leaves/zarr.json", lambda meta: meta.update(shape=[1, 2, 16])),
        ("data.zarr/delta_index/zarr.json", lambda meta: meta.update(shape=[2])),
        ("data.zarr/delta/zarr.json", lambda meta: meta.update(data_type="float64")),
        ("data.zarr/reverse/zarr.json", lambda meta: meta["codecs"].append({"name": "blosc"})),
    ],
)
def test_the_layout_is_checked_as_readers_read_it(tmp_path: Path, key: str, change: Callable[[Any], None]) -> None:
    digest = write(tmp_path, pair())
    store = FileStore(tmp_path)
    Artifact.open(store, digest).check_layout()
    meta = json.loads(store.get(artifact_prefix(digest) + key, max_bytes=1 << 16))
    change(meta)
    forged = Artifact.open(store, forge(tmp_path, digest, {key: canonical(meta)}))
    with pytest.raises(DataError):
        forged.check_layout()


def test_small_files_are_of_the_kinds_that_travel(tmp_path: Path) -> None:
    digest = write(tmp_path, pair(), files={"run.sh": b"echo"})
    with pytest.raises(FormatError, match=r"not a file that travels with a checkpoint: 'run\.sh'"):
        Artifact.open(FileStore(tmp_path), digest).check_layout()
