from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import CorruptError, NoSpaceError, UsageError
from maskreg.flow.extract.extraction import extract
from maskreg.flow.extract.pairing import Pair, StoredAs, estimated_bytes
from maskreg.flow.storing import artifact_space
from maskreg.store import FileStore
from maskreg.tensors.info import TensorInfo
from tests.checkpoints import bf16, f32, make_pair, moved, widened
from tests.flow.making import BLOCK, NewMemory, edge_pair, extracted, left_over, opened


def test_the_mask_is_what_the_rule_says_and_the_totals_add_up(tmp_path: Path) -> None:
    source, target = edge_pair()
    artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target))
    nnz = 0
    for name, (dtype, before) in source.items():
        if dtype == "BF16":
            after = target[name][1]
            expected = (before != after) & (((before | after) & 0x7FFF) != 0)
            assert np.array_equal(artifact.mask[name].to_bool(), expected), name
            nnz += int(expected.sum())
            assert artifact.by_name[name].differing == int((before != after).sum())
    manifest = artifact.manifest
    assert manifest.totals.numel == sum(b.size for _, b in source.values())
    assert manifest.totals.nnz == nnz + artifact.by_name["half"].nnz
    assert (manifest.kind, manifest.rule, manifest.exact, manifest.source.cast) == ("delta", "exact", True, "")
    assert set(manifest.parts) == {"mask", "delta"}
    assert manifest.source.params == manifest.totals.numel
    assert manifest.source.dtypes == {"BF16": manifest.totals.numel - 93, "F16": 93}


def test_the_same_input_gives_the_same_digest(tmp_path: Path) -> None:
    source, target = opened(tmp_path, *edge_pair())
    again = opened(tmp_path / "copy", *edge_pair(), shards=3)
    first = extract(source, target, tmp_path / "a", reversible=True, jobs=1)
    assert extract(source, target, tmp_path / "b", reversible=True, jobs=4) == first
    assert extract(*again, tmp_path / "a", reversible=True) == first
    assert extract(source, target, tmp_path / "c") != first
    assert left_over(tmp_path / "a" / "staging") == []


def test_identical_checkpoints_give_a_valid_empty_artifact(tmp_path: Path) -> None:
    source, _ = edge_pair()
    done = extract(*opened(tmp_path, source, source), tmp_path / "root")
    assert any("identical" in note for note in done.notes)
    artifact = extracted(tmp_path / "root", *opened(tmp_path, source, source))
    assert artifact.digest == done.digest
    assert artifact.manifest.totals.nnz == artifact.manifest.totals.differing == 0
    assert artifact.manifest.source.root == artifact.manifest.target.root
    artifact.verify()


def test_a_mask_alone_holds_no_values(tmp_path: Path) -> None:
    source, target = opened(tmp_path, *edge_pair())
    full = extracted(tmp_path / "root", source, target)
    artifact = extracted(tmp_path / "root", source, target, mask_only=True)
    assert (artifact.manifest.kind, artifact.manifest.exact) == ("mask", False)
    assert set(artifact.manifest.parts) == {"mask"}
    assert artifact.manifest.totals == full.manifest.totals
    assert artifact.manifest.target == full.manifest.target
    assert artifact.files() == {}
    with pytest.raises(UsageError, match="reversible"):
        extract(source, target, tmp_path / "root", mask_only=True, reversible=True)


def test_two_fp32_checkpoints_have_a_mask(tmp_path: Path) -> None:
    before, after = bf16((40, 40), 1), moved(bf16((40, 40), 1), 0.2)
    pair = opened(tmp_path, {"w": widened(before)}, {"w": widened(after)})
    artifact = extracted(tmp_path / "root", *pair, mask_only=True)
    plain = extracted(tmp_path / "root", *opened(tmp_path / "plain", {"w": before}, {"w": after}), mask_only=True)
    # The noise below bf16 can round up, so the cast differs from the truncation, but on both sides alike.
    assert artifact.manifest.totals.nnz == plain.manifest.totals.nnz
    assert artifact.manifest.source.dtypes == {"F32": 1600}


def test_code_is_left_out_and_named_unless_it_has_work(tmp_path: Path) -> None:
    source, target = make_pair(tmp_path)
    (source / "modeling_x.py").write_text("old = 1")
    (target / "modeling_x.py").write_text("new = 1")
    (target / "tool.json").write_text('{"auto_map": {"AutoModel": "modeling_x.X"}}')
    (target / "vocab.txt").write_text("a")
    pair = open_checkpoint(source), open_checkpoint(target)
    without = extract(*pair, tmp_path / "root", reversible=True)
    assert (without.code_files, without.code_left_out) == ((), ("modeling_x.py", "tool.json"))
    assert len(without.notes) == 1 and "modeling_x.py, tool.json" in without.notes[0]
    artifact = Artifact.open(FileStore(tmp_path / "root"), without.digest)
    assert set(artifact.files()) == {"config.json", "vocab.txt"}
    assert set(artifact.files("reverse")) == {"config.json"}
    taken = extract(*pair, tmp_path / "root", reversible=True, with_code=True)
    assert (taken.code_files, taken.code_left_out) == (("modeling_x.py", "tool.json"), ())
    assert len(taken.notes) == 1
    artifact = Artifact.open(FileStore(tmp_path / "root"), taken.digest)
    assert artifact.files()["modeling_x.py"] == b"new = 1"
    assert artifact.files("reverse")["modeling_x.py"] == b"old = 1"


def test_an_extraction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    tensors = {f"w{n}": bf16((600, 600), n) for n in range(6)}
    source, target = opened(tmp_path, tensors, tensors)
    weights = tmp_path / "target" / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 100)
    with pytest.raises(CorruptError):
        extract(source, target, tmp_path / "root")
    assert left_over(tmp_path / "root") == ["staging"]
    assert left_over(tmp_path / "root" / "staging") == []


def test_memory_is_used_again_for_every_block(tmp_path: Path) -> None:
    tensors = {f"w{n}": ("BF16", np.full(BLOCK, n, np.uint16)) for n in range(8)}
    changed = {name: ("BF16", codes ^ np.uint16(1)) for name, (_, codes) in tensors.items()}
    source, target = opened(tmp_path, tensors, changed)
    with NewMemory() as new:
        extract(source, target, tmp_path / "root", jobs=1, mask_only=True, progress=new)
    assert len(new.of_steps) == 8
    # A side of a block has 8 MiB. The first block takes what the others use again.
    assert sum(step > 6 << 20 for step in new.of_steps) <= 1, new.of_steps


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    huge = TensorInfo("w", "BF16", (1 << 50,))
    needed = estimated_bytes([Pair("w", StoredAs.DELTA, huge, huge)], mask_only=False, reversible=False)
    with pytest.raises(NoSpaceError, check=lambda error: error.needed == needed):
        artifact_space(tmp_path / "root", needed).__enter__()
    assert left_over(tmp_path) == []


def test_an_estimate_is_not_exceeded_by_a_dense_update(tmp_path: Path) -> None:
    source = {"w": bf16((1500, 1500), 1), "router": f32((8, 64), 2)}
    target = {"w": moved(source["w"], 0.5), "router": f32((8, 64), 3)}
    pair = opened(tmp_path, source, target)
    w, router = (pair[0].tensors[name] for name in source)
    pairs = [Pair("w", StoredAs.DELTA, w, w), Pair("router", StoredAs.WIDE, router, router)]
    for mask_only, reversible in ((False, False), (True, False), (False, True)):
        artifact = extracted(tmp_path / "root", *pair, mask_only=mask_only, reversible=reversible)
        payload = sum(o.size for o in artifact.manifest.objects if o.key.startswith("data.zarr/"))
        metadata = 20_000  # zarr.json of every array
        assert payload < metadata + estimated_bytes(pairs, mask_only=mask_only, reversible=reversible)


def test_progress_is_told_every_byte_of_both_sides(tmp_path: Path) -> None:
    class Listener:
        total = done = 0

        def start(self, label: str, total_bytes: int) -> None:
            self.total = total_bytes

        def advance(self, n_bytes: int) -> None:
            self.done += n_bytes

    tensors = {"model.embed_tokens.weight": bf16((70, 3)), "lm_head.weight": bf16((70, 3)), "w": bf16((8, 8))}
    listener = Listener()
    extract(*opened(tmp_path, tensors, tensors), tmp_path / "root", progress=listener)
    assert listener.done == listener.total == 2 * 2 * (210 + 210 + 64)
