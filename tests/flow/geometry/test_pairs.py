"""Two updates beside each other, against dense vectors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Selection, open_checkpoint
from maskreg.errors import PairMismatchError, PartAbsentError
from maskreg.flow.geometry import updates
from maskreg.flow.geometry.updates import compare_updates
from maskreg.tensors.cast import to_float
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import extracted

MLP = "model.layers.0.mlp."
SHAPES = {
    "model.embed_tokens.weight": (30, 16),
    f"{MLP}gate_proj.weight": (40, 16),
    f"{MLP}up_proj.weight": (40, 16),
    f"{MLP}down_proj.weight": (16, 40),
    "model.layers.0.mlp.experts.up_proj": (3, 8, 16),
    "model.norm.weight": (16,),
}


def numbers(tensor: Tensor) -> np.ndarray:
    return to_float(tensor[1], tensor[0])


def made(tmp_path: Path, runs: int = 2, *, mask_only: bool = False) -> tuple[list[dict[str, Tensor]], list[Artifact]]:
    """A source and some runs of it, and the artifacts of the runs."""
    source = {name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}
    targets = [
        {name: moved(tensor, 0.5, 7 * run + len(name)) for name, tensor in source.items()} for run in range(runs)
    ]
    targets[0]["model.norm.weight"] = source["model.norm.weight"]
    models = [source, *targets]
    paths = [make_checkpoint(tmp_path / str(number), tensors) for number, tensors in enumerate(models)]
    before = open_checkpoint(paths[0])
    return models, [extracted(tmp_path, before, open_checkpoint(path), mask_only=mask_only) for path in paths[1:]]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("block", [1 << 22, 50])
def test_cosines_are_those_of_dense_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(updates, "BLOCK_NUMEL", block)
    models, artifacts = made(tmp_path, 3)
    found = compare_updates(artifacts, open_checkpoint(tmp_path / "0"), ["x", "y", "z"])
    assert [pair.names for pair in found] == [("x", "y"), ("x", "z"), ("y", "z")]
    pair = found[0]
    a, b = ({n: (numbers(m[n]) - numbers(models[0][n])).reshape(-1) for n in SHAPES} for m in models[1:3])
    whole = [np.concatenate(list(side.values())) for side in (a, b)]
    assert pair.whole.cosine == pytest.approx(cosine(*whole), rel=1e-12)
    assert pair.whole.orthogonal == pytest.approx(1 - cosine(*whole) ** 2, rel=1e-12)
    assert pair.whole.numel == whole[0].size
    ffn = [np.concatenate([side[n] for n in SHAPES if "mlp" in n]) for side in (a, b)]
    assert pair.roles["ffn"].cosine == pytest.approx(cosine(*ffn), rel=1e-12)
    assert pair.layers["0"].cosine == pair.roles["ffn"].cosine
    for name, row in pair.tensors.items():
        truth = None if name == "model.norm.weight" else pytest.approx(cosine(a[name], b[name]), rel=1e-12)
        assert row.cosine == truth
    by_tensor = [n for n in SHAPES if n != "model.norm.weight"]
    left = sum((a[n] @ a[n]) * (1 - cosine(a[n], b[n]) ** 2) for n in by_tensor) / (whole[0] @ whole[0])
    still = b["model.norm.weight"] @ b["model.norm.weight"]
    right = sum((b[n] @ b[n]) * (1 - cosine(a[n], b[n]) ** 2) for n in by_tensor) + still
    assert pair.orthogonal_by_tensor == pytest.approx((left, right / (whole[1] @ whole[1])), rel=1e-12)


def test_random_signs_spread_the_cosine_as_said(tmp_path: Path) -> None:
    models, artifacts = made(tmp_path)
    (pair,) = compare_updates(artifacts, open_checkpoint(tmp_path / "0"))
    a, b = (np.concatenate([(numbers(m[n]) - numbers(models[0][n])).reshape(-1) for n in SHAPES]) for m in models[1:3])
    rng = np.random.default_rng(0)
    draws = [cosine(a * rng.choice([-1.0, 1.0], a.size), b) for _ in range(2000)]
    assert pair.whole.cosine_sd == pytest.approx(np.std(draws), rel=0.06)


def test_channels_are_rows_and_columns_of_one_neuron(tmp_path: Path) -> None:
    models, artifacts = made(tmp_path)
    (pair,) = compare_updates(artifacts, open_checkpoint(tmp_path / "0"))
    tops = []
    for model in models[1:]:
        squares = {
            n: (numbers(model[f"{MLP}{n}.weight"]) - numbers(models[0][f"{MLP}{n}.weight"])) ** 2
            for n in ("gate_proj", "up_proj", "down_proj")
        }
        energies = squares["gate_proj"].sum(1) + squares["up_proj"].sum(1) + squares["down_proj"].sum(0)
        tops.append(set(np.argsort(-energies)[: math.ceil(0.1 * 40)].tolist()))
    assert pair.channels.by_mlp == {"model.layers.0.mlp": len(tops[0] & tops[1]) / len(tops[0] | tops[1])}
    assert pair.channels.mlps == 1


def test_an_update_beside_itself_is_parallel(tmp_path: Path) -> None:
    _, artifacts = made(tmp_path)
    selection = Selection.parse(["ffn"])
    (pair,) = compare_updates([artifacts[0]] * 2, open_checkpoint(tmp_path / "0"), selection=selection)
    assert pair.whole.cosine == pytest.approx(1, rel=1e-15)
    assert pair.channels.jaccard == 1
    assert set(pair.roles) == {"ffn"}


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    _, artifacts = made(tmp_path)
    source = open_checkpoint(tmp_path / "0")
    (tmp_path / "masks").mkdir()
    _, masks = made(tmp_path / "masks", mask_only=True)
    with pytest.raises(PartAbsentError):
        compare_updates([artifacts[0], masks[1]], source)
    back = extracted(tmp_path, open_checkpoint(tmp_path / "1"), source)
    with pytest.raises(PairMismatchError, match=r"embed_tokens\.weight"):
        compare_updates([artifacts[0], back], source)
