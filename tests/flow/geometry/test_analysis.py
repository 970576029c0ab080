"""Analyses of small artifacts: figures against dense definitions, both ways to the target, going on after a kill."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.analysis.matrix import METRICS, AnalysisSpec
from maskreg.artifact.analysis import read_analysis
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import PartAbsentError, UsageError, WrongTargetError
from maskreg.flow.extract.extraction import extract
from maskreg.flow.geometry import measuring
from maskreg.flow.geometry.analysis import AnalysisResult, analysis_spec, analyze
from maskreg.flow.geometry.measuring import WORK
from maskreg.progress import Silent
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import bits, extracted, opened

FFN = "model.layers.0.mlp.up_proj.weight"
EXPERTS = "model.layers.1.mlp.experts.down_proj"
NORM = "model.norm.weight"


def numbers(tensor: Tensor) -> np.ndarray:
    dtype, stored = tensor
    if dtype == "F32":
        return stored.view(np.float32).astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def as_bf16(values: np.ndarray) -> Tensor:
    return bits(
        torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    )


def small_pair() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    source = {FFN: bf16((48, 32), 1), EXPERTS: bf16((3, 24, 40), 2), NORM: bf16((32,), 3)}
    target = {name: moved(tensor, 0.3, seed) for seed, (name, tensor) in enumerate(source.items())}
    return source, {**target, NORM: source[NORM]}


def small(folder: Path, **options: Any) -> tuple[Checkpoint, Checkpoint, Artifact]:
    before, after = opened(folder, *small_pair())
    return before, after, extracted(folder, before, after, **options)


def asked(**options: Any) -> AnalysisSpec:
    return analysis_spec(**{"ranks": (4,), "presets": ("small",), **options})


def analyzed(artifact: Artifact, source: Checkpoint, target: Checkpoint | None, root: Path, **options: Any) -> Any:
    return dict(analyze(artifact, source, target, root, asked(**options)).document)


def tensor_of(document: Any, name: str) -> Any:
    return next(row for row in document["tensors"] if row["name"] == name)


def test_figures_are_those_of_the_dense_definitions(tmp_path: Path) -> None:
    source, target = small_pair()
    artifact = extracted(tmp_path, *opened(tmp_path, source, target))
    row = tensor_of(analyzed(artifact, open_checkpoint(tmp_path / "source"), None, tmp_path), FFN)
    found = row["matrices"][0]["figures"]
    before, after = numbers(source[FFN]), numbers(target[FFN])
    u, s, vh = np.linalg.svd(before)
    u1, s1, _ = np.linalg.svd(after)
    sigma = np.linalg.svd(after - before, compute_uv=False)
    assert found["relative_norm"] == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-5)
    assert found["stable_rank"] == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=1e-5)
    assert found["spectral_norm"] == pytest.approx(np.linalg.norm(after - before, 2), rel=1e-5)
    assert found["energy_top_16"] == pytest.approx((sigma[:16] ** 2).sum() / (sigma**2).sum(), rel=1e-5)
    angles = np.degrees(np.arccos(np.linalg.svd(u[:, :4].T @ u1[:, :4], compute_uv=False).clip(max=1)))
    assert found["angle_max_u_4"] == pytest.approx(angles.max(), rel=1e-4)
    assert found["nss"] == pytest.approx(np.linalg.norm(s1 - s) / np.linalg.norm(s), rel=1e-5)
    changed = source[FFN][1] != target[FFN][1]
    count = -(-3 * changed.size // 10)
    low = np.argsort(np.abs(before).reshape(-1), kind="stable")[:count]
    assert found["low_small_0.30@exact"] == pytest.approx(changed.reshape(-1)[low].sum() / changed.sum(), rel=1e-5)
    scores = np.abs(u[:, :16] * s[:16] @ vh[:16]).reshape(-1)
    chosen = np.argsort(-scores, kind="stable")[:count]
    assert found["principal_small_0.30@exact"] == pytest.approx(
        changed.reshape(-1)[chosen].sum() / changed.sum(), rel=1e-5
    )
    assert row["moved"]["exact"] == changed.sum() == row["moved"]["rel:0.001"]
    assert row["moved"]["abs:1e-05"] == (np.abs(after - before) > 1e-5).sum()


def test_shares_of_energy_are_those_of_the_dense_definitions(tmp_path: Path) -> None:
    source, target = small_pair()
    artifact = extracted(tmp_path, *opened(tmp_path, source, target))
    document = analyzed(artifact, open_checkpoint(tmp_path / "source"), None, tmp_path)
    squares = {name: np.sort(((numbers(target[name]) - numbers(source[name])) ** 2).reshape(-1)) for name in source}
    energy = sum(values.sum() for values in squares.values())
    ffn = sum(values.sum() for name, values in squares.items() if name != NORM)
    share = sum(source[name][1].size for name in source if name != NORM) / document["total"]["numel"]
    assert document["roles"]["ffn"]["energy_share"]["value"] == pytest.approx(ffn / energy, rel=1e-5)
    assert document["roles"]["ffn"]["energy_lift"]["value"] == pytest.approx(ffn / energy / share, rel=1e-5)
    assert document["roles"]["norm"]["energy_share"]["value"] == 0
    for percent, figure in ((0.1, "concentration_0.1pct"), (1, "concentration_1pct"), (5, "concentration_5pct")):
        top = sum(values[-int(np.ceil(percent * values.size / 100)) :].sum() for values in squares.values())
        assert document["total"]["concentration"][figure]["value"] == pytest.approx(top / energy, rel=1e-5)


def test_every_expert_is_a_matrix_and_a_vector_is_none(tmp_path: Path) -> None:
    source, target = small_pair()
    artifact = extracted(tmp_path, *opened(tmp_path, source, target))
    document = analyzed(artifact, open_checkpoint(tmp_path / "source"), None, tmp_path)
    experts = tensor_of(document, EXPERTS)
    assert len(experts["matrices"]) == 3
    for number, matrix in enumerate(experts["matrices"]):
        update = numbers(target[EXPERTS])[number] - numbers(source[EXPERTS])[number]
        wanted = (update**2).sum() / np.linalg.norm(update, 2) ** 2
        assert matrix["figures"]["stable_rank"] == pytest.approx(wanted, rel=1e-5)
    assert tensor_of(document, NORM)["matrices"] == []
    assert document["total"]["numel"] == sum(tensor[1].size for tensor in source.values())
    assert document["total"]["figures"]["nss"]["matrices"] == 4
    assert tensor_of(document, NORM)["null_moved"] is None


def test_the_target_given_and_the_target_made_give_the_same_figures(tmp_path: Path) -> None:
    before, after, artifact = small(tmp_path)
    given, made = analyzed(artifact, before, after, tmp_path), analyzed(artifact, before, None, tmp_path)
    assert given["tensors"] == made["tensors"]
    assert given["recipe"]["target"] != made["recipe"]["target"]


def test_a_mask_needs_its_own_target(tmp_path: Path) -> None:
    before, after, artifact = small(tmp_path, mask_only=True)
    with pytest.raises(WrongTargetError):
        analyze(artifact, before, before, tmp_path, asked())
    with pytest.raises(PartAbsentError) as caught:
        analyze(artifact, before, None, tmp_path, asked())
    assert caught.value.facts["options"] == {"target": None}
    assert analyzed(artifact, before, after, tmp_path)["total"]["figures"]["nss"]["matrices"] == 4


def test_rounding_fills_the_rank_of_a_rank_one_update_and_masters_do_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = {FFN: bf16((256, 256), 1)}
    after = numbers(source[FFN]) + 2e-4 * np.outer(rng.normal(size=256), rng.normal(size=256))
    masters = {FFN: ("F32", after.astype(np.float32).view(np.uint32))}
    before, target = opened(tmp_path, source, {FFN: as_bf16(after)})
    artifact = extracted(tmp_path, before, target)
    full = open_checkpoint(make_checkpoint(tmp_path / "masters", masters))
    cast = analyzed(artifact, before, None, tmp_path, metrics=("rank",))
    wide = analyzed(artifact, before, full, tmp_path, metrics=("rank",))
    (rounded,), (exact,) = ([m["figures"] for m in tensor_of(d, FFN)["matrices"]] for d in (cast, wide))
    assert 236 <= rounded["numerical_rank_1e-04"] * 256 <= 256
    assert exact["numerical_rank_1e-04"] * 256 == pytest.approx(1)
    assert exact["stable_rank"] == pytest.approx(1, abs=1e-3)
    assert cast["total"]["moved"] == wide["total"]["moved"]
    for document, is_wide in ((cast, False), (wide, True)):
        assert [any(word in note for note in document["notes"]) for word in ("fills the rank", "masters")] == [
            not is_wide,
            is_wide,
        ]
    assert (cast["null"]["rounded"], wide["null"]["rounded"]) == (True, False)


def test_a_merged_adapter_is_suspected_and_noise_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    source = {FFN: bf16((192, 256), 1)}
    low = rng.normal(size=(192, 16)) @ rng.normal(size=(16, 256)) / 4
    noise = rng.normal(size=(192, 256))
    for name, update, suspected in (("lora", low, True), ("noise", noise, False)):
        target = {FFN: as_bf16(numbers(source[FFN]) + 1e-4 * update)}
        before, after = opened(tmp_path / name, source, target)
        artifact = extracted(tmp_path / name, before, after)
        assert 0.4 < artifact.manifest.totals.density < 0.95
        document = analyzed(artifact, before, None, tmp_path / name, metrics=("rank",))
        assert tensor_of(document, FFN)["merged"] == suspected
        assert any("merged LoRA" in note for note in document["notes"]) == suspected


def test_a_nan_takes_the_figures_of_its_tensor_alone(tmp_path: Path) -> None:
    source, target = small_pair()
    target[FFN][1][0, 0] = 0x7FC0
    artifact = extracted(tmp_path, *opened(tmp_path, source, target))
    document = analyzed(artifact, open_checkpoint(tmp_path / "source"), None, tmp_path)
    assert tensor_of(document, FFN)["matrices"] == []
    assert "NaN" in tensor_of(document, FFN)["notes"][0]
    assert len(tensor_of(document, EXPERTS)["matrices"]) == 3


def test_the_result_refers_to_what_it_is_about(tmp_path: Path) -> None:
    before, _, artifact = small(tmp_path)
    made = analyze(artifact, before, None, tmp_path, asked(seed=4))
    kept = Artifact.open(FileStore(tmp_path), made.digest)
    assert (kept.manifest.kind, kept.manifest.parents) == ("analysis", (str(artifact.digest),))
    assert kept.manifest.recipe == made.document["recipe"]
    assert kept.manifest.totals == artifact.manifest.totals
    assert kept.verify() == {"analysis"}
    assert read_analysis(kept)["tensors"] == made.document["tensors"]
    with pytest.raises(PartAbsentError):
        kept.require("mask")
    assert not list((tmp_path / WORK).iterdir())
    assert not list((tmp_path / "staging").iterdir())
    assert analyze(artifact, before, None, tmp_path, asked(seed=4)).digest == made.digest
    assert analyze(artifact, before, None, tmp_path, asked(seed=5)).digest != made.digest


KILLED = """
import os, signal, sys
from pathlib import Path
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.flow.geometry.analysis import analyze, analysis_spec
from maskreg.progress import Silent
from maskreg.store.file import FileStore

class Killer(Silent):
    left = 2
    def advance(self, n_bytes):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[1])
artifact = Artifact.open(FileStore(root), Digest(sys.argv[2]))
spec = analysis_spec(ranks=(4,), presets=("small",))
analyze(artifact, open_checkpoint(root / "source"), None, root, spec, progress=Killer())
"""


def test_an_analysis_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    before, _, artifact = small(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(artifact.digest)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = (tmp_path / WORK).iterdir()
    assert len(list(folder.iterdir())) == 2

    class Finished(Silent):
        tensors = 0

        def advance(self, n_bytes: int) -> None:
            self.tensors += 1

    heard = Finished()
    resumed = analyze(artifact, before, None, tmp_path, asked(), progress=heard)
    assert (resumed.resumed, heard.tensors) == (2, 3)
    fresh: AnalysisResult = analyze(artifact, before, None, tmp_path, asked())
    assert (fresh.resumed, fresh.digest) == (0, resumed.digest)


def test_a_process_that_ends_the_same_analysis_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _, artifact = small(tmp_path)
    monkeypatch.setattr(measuring, "plain", lambda _: shutil.rmtree(tmp_path / WORK))
    assert analyze(artifact, before, None, tmp_path, asked()).resumed == 0


def test_only_what_is_asked_for_is_measured(tmp_path: Path) -> None:
    before, _, artifact = small(tmp_path)
    found = [set(analyzed(artifact, before, None, tmp_path, metrics=(group,))["total"]["figures"]) for group in METRICS]
    everything = set(analyzed(artifact, before, None, tmp_path)["total"]["figures"])
    assert set.union(*found) == everything
    assert sum(map(len, found)) == len(everything)


def test_questions_without_an_answer_are_refused() -> None:
    for options in ({"metrics": ("beauty",)}, {"presets": ("paper",)}, {"ranks": (0,)}, {"seed": -1}, {"q": 0}):
        with pytest.raises(UsageError):
            analysis_spec(**options)


def test_large_matrices_are_measured_by_range_finding(tmp_path: Path) -> None:
    before, _, artifact = small(tmp_path)
    exact = analyzed(artifact, before, None, tmp_path)["total"]["figures"]
    near = analyzed(artifact, before, None, tmp_path, exact_up_to=8, q=20, niter=8)
    assert near["recipe"]["decomposition"] == {
        "exact_up_to": 8, "q": 20, "niter": 8, "seed": 0, "dtype": "float64",
    }  # fmt: skip
    found = near["total"]["figures"]
    for name in ("stable_rank", "energy_top_16", "angle_max_u_4", "projection_0.10"):
        assert found[name]["mean"] == pytest.approx(exact[name]["mean"], rel=0.02)
    for name in ("effective_rank", "nss", "rank_99"):
        assert found[name]["matrices"] == 0


def test_an_update_of_nothing_has_neither_null_nor_figures(tmp_path: Path) -> None:
    before, _ = opened(tmp_path, *small_pair())
    made = extract(before, before, tmp_path)
    document = analyzed(Artifact.open(FileStore(tmp_path), made.digest), before, None, tmp_path)
    # Nothing moved: no null, no figure of the update, and no division by it.
    assert document["total"]["sparsity"]["exact"] == {"value": 1.0, "null": 1.0}
    assert document["total"]["figures"]["stable_rank"]["matrices"] == 0
    assert document["total"]["figures"]["nss"]["mean"] == 0
    assert any(" 3 of 3 " in note for note in document["notes"])
