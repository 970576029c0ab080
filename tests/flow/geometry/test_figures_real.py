"""Figures of a real tensor against their definitions written out."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Selection, open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from maskreg.flow.geometry.trajectory import trajectory
from maskreg.flow.geometry.updates import compare_updates
from maskreg.flow.overlap.survey import write_consensus
from maskreg.tensors.cast import to_float
from tests.demo import DEMO
from tests.flow.making import extracted

NAME = "model.layers.1.self_attn.k_proj.weight"
MLP = "model.layers.1.mlp"
ONE = Selection.parse(["k_proj"], "1")


def numbers(side: Checkpoint, name: str) -> Any:
    info = side.tensors[name]
    return to_float(side.read(name, 0, info.numel), info.dtype).reshape(info.shape)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Checkpoint], list[Artifact]]:
    """A folder, three checkpoints, and the artifacts of the later two."""
    root = tmp_path_factory.mktemp("runs")
    sides = [open_checkpoint(DEMO / name) for name in ("source", "target-seed1", "target")]
    return root, sides, [extracted(root, sides[0], side) for side in sides[1:]]


def test_energy_concentration_and_spectral_norm(runs: tuple[Path, list[Checkpoint], list[Artifact]]) -> None:
    root, sides, artifacts = runs
    selection = Selection.parse(["k_proj", "v_proj"], "1")
    spec = analysis_spec(metrics=("norm", "concentration", "rank"), selection=selection)
    document = analyze(artifacts[1], sides[0], None, root, spec).document
    updates = [numbers(sides[2], n) - numbers(sides[0], n) for n in (NAME, NAME.replace("k_proj", "v_proj"))]
    squares = [np.sort(np.square(update).reshape(-1))[::-1] for update in updates]
    energy = sum(values.sum() for values in squares)
    for share, figure in ((0.001, "concentration_0.1pct"), (0.01, "concentration_1pct"), (0.05, "concentration_5pct")):
        top = sum(values[: math.ceil(share * values.size)].sum() for values in squares)
        assert document["total"]["concentration"][figure]["value"] == pytest.approx(top / energy, rel=1e-5)
    assert document["total"]["energy"]["value"] == pytest.approx(energy, rel=1e-5)
    figures = document["tensors"][0]["matrices"][0]["figures"]
    sigma = np.linalg.svd(updates[0], compute_uv=False)
    assert figures["spectral_norm"] == pytest.approx(sigma[0], rel=1e-5)
    assert figures["hill"] == pytest.approx(1 / np.mean(np.log(sigma[:9] / sigma[9])), rel=1e-5)


def test_every_role_has_its_share_of_the_energy(runs: tuple[Path, list[Checkpoint], list[Artifact]]) -> None:
    root, sides, artifacts = runs
    document = analyze(artifacts[1], sides[0], None, root, analysis_spec(metrics=("norm",))).document
    energies = {n: float(np.square(numbers(sides[2], n) - numbers(sides[0], n)).sum()) for n in sides[0].tensors}
    ffn = [name for name in energies if ".mlp." in name]
    share = sum(energies[name] for name in ffn) / sum(energies.values())
    params = sum(sides[0].tensors[name].numel for name in ffn) / document["total"]["numel"]
    assert document["roles"]["ffn"]["energy_share"]["value"] == pytest.approx(share, rel=1e-4)
    assert document["roles"]["ffn"]["energy_lift"]["value"] == pytest.approx(share / params, rel=1e-4)
    # What the manifest has of the FFN alone.
    assert artifacts[1].manifest.totals.ffn.energy_share == pytest.approx(share, rel=1e-4)


def test_a_run_of_one_tensor(runs: tuple[Path, list[Checkpoint], list[Artifact]]) -> None:
    _, sides, _ = runs
    spec = analysis_spec(metrics=("angles", "shift", "coverage"), ranks=(8,), presets=("small",), selection=ONE)
    rows = trajectory(sides[0], sides[1:], spec)["checkpoints"]
    start = numbers(sides[0], NAME)
    u, s, _ = np.linalg.svd(start, full_matrices=False)
    low = np.argsort(np.abs(start).reshape(-1), kind="stable")[: math.ceil(0.3 * start.size)]
    for row, side in zip(rows, sides[1:], strict=True):
        end = numbers(side, NAME)
        u1, s1, _ = np.linalg.svd(end, full_matrices=False)
        sines = np.linalg.svd(u1[:, :8] - u[:, :8] @ (u[:, :8].T @ u1[:, :8]), compute_uv=False)
        assert row["figures"]["angle_max_u_8"]["mean"] == pytest.approx(math.degrees(math.asin(sines[0])), rel=1e-4)
        assert row["figures"]["nss"]["mean"] == pytest.approx(np.linalg.norm(s1 - s) / np.linalg.norm(s), rel=1e-4)
        moved = (end != start).reshape(-1)
        covered = row["figures"]["low_small_0.30@exact"]["mean"]
        assert covered == pytest.approx(moved[low].sum() / moved.sum(), rel=1e-4)


def test_consensus_and_channels_of_two_runs(runs: tuple[Path, list[Checkpoint], list[Artifact]]) -> None:
    _, sides, artifacts = runs
    file = io.BytesIO()
    (tensor,) = write_consensus(artifacts, file, selection=ONE)
    masks = [numbers(side, NAME) != numbers(sides[0], NAME) for side in sides[1:]]
    with np.load(io.BytesIO(file.getvalue())) as maps:
        assert np.array_equal(maps[NAME], np.sum(masks, axis=0))
    single = sum(mask.mean() * (1 - mask.mean()) for mask in masks) / 4
    assert tensor.rows == pytest.approx(np.mean(masks, axis=0).mean(1).var() / (single / masks[0].shape[1]))
    (pair,) = compare_updates(artifacts, sides[0], selection=Selection.parse(["ffn"], "1"))
    tops = []
    for side in sides[1:]:
        squares = {
            n: np.square(numbers(side, f"{MLP}.{n}.weight") - numbers(sides[0], f"{MLP}.{n}.weight"))
            for n in ("gate_proj", "up_proj", "down_proj")
        }
        energies = squares["gate_proj"].sum(1) + squares["up_proj"].sum(1) + squares["down_proj"].sum(0)
        tops.append(set(np.argsort(-energies)[: math.ceil(energies.size / 10)].tolist()))
    assert pair.channels.by_mlp == {MLP: pytest.approx(len(tops[0] & tops[1]) / len(tops[0] | tops[1]))}
