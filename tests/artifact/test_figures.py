"""What a publisher states is computed again: on every reading from the table, with a recount from the mask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec import to_builtins

from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.artifact.tensors import Tensor, load_tensors
from maskreg.artifact.totals import totals_of
from maskreg.digest import Digest
from maskreg.document import canonical
from maskreg.errors import FormatError
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
    assert fault.startswith(f"{name}: ") and f" {stated + 5} " in fault and fault.endswith(f" {stated}")


def test_a_recount_hashes_the_leaves(tmp_path: Path) -> None:
    digest = write(tmp_path, pair(), parts=("mask",))
    forged = _other_counts(tmp_path, digest, 0, target_fingerprint="0" * 32)
    assert len(list(recount(Artifact.open(FileStore(tmp_path), forged)))) == 1


def test_a_recount_sees_bits_behind_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact.open(FileStore(tmp_path), write(tmp_path, pair()))
    row, read = artifact.by_name["scale"], artifact.mask_bits

    def with_padding(of: Tensor, start: int = 0, stop: int | None = None) -> npt.NDArray[np.uint8]:
        bits = read(of, start, stop).copy()
        if of is row:
            bits[7] |= 0x80
        return bits

    monkeypatch.setattr(artifact, "mask_bits", with_padding)
    (fault,) = recount(artifact)
    assert fault.startswith("'scale': ")


def test_small_files_are_of_the_kinds_that_travel(tmp_path: Path) -> None:
    digest = write(tmp_path, pair(), files={"run.sh": b"echo"})
    with pytest.raises(FormatError, match=r"'run\.sh'"):
        Artifact.open(FileStore(tmp_path), digest).check_layout()
