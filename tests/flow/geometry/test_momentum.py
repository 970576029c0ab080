"""Figures of Adam's state as torch saves it, against dense definitions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from maskreg.checkpoint import Selection, open_checkpoint
from maskreg.checkpoint.moments import open_moments
from maskreg.errors import FormatError, NotFoundError, UsageError
from maskreg.flow.geometry.updates import measure_moments
from tests.checkpoints import Tensor, make_checkpoint
from tests.flow.making import extracted

UP, Q, NORM = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
SHAPES = {UP: (24, 10), Q: (16, 10), NORM: (10,)}


@pytest.fixture(scope="module")
def run() -> dict[str, dict[str, torch.Tensor]]:
    """By name: weights before and after some steps of AdamW, both moments, and the last gradient."""
    generator = torch.Generator().manual_seed(0)
    parameters = {n: torch.nn.Parameter(torch.randn(s, generator=generator) * 0.1) for n, s in SHAPES.items()}
    before = {n: p.detach().clone() for n, p in parameters.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3)
    for _ in range(5):
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=generator) + 0.5
            # No gradient ever reaches the first coordinates.
            parameter.grad.view(-1)[:4] = 0
        optimizer.step()
    return {
        name: {
            "before": before[name],
            "after": parameter.detach().clone(),
            "exp_avg": optimizer.state[parameter]["exp_avg"],
            "exp_avg_sq": optimizer.state[parameter]["exp_avg_sq"],
            "grad": parameter.grad if parameter.grad is not None else torch.zeros(0),
        }
        for name, parameter in parameters.items()
    }


def saved(folder: Path, run: dict[str, dict[str, torch.Tensor]], form: str) -> Path:
    """The state in one of the forms that runs leave behind."""
    by_name = {n: {"step": torch.tensor(5.0), **{k: s[k] for k in ("exp_avg", "exp_avg_sq")}} for n, s in run.items()}
    folder.mkdir(exist_ok=True)
    if form == "numbered":
        numbered = {"state": dict(enumerate(by_name.values())), "param_groups": [{"params": [0, 1, 2], "lr": 1e-3}]}
        torch.save(numbered, folder / "optimizer.pt")
        return folder
    if form == "named":
        wrapped = {f"_orig_mod.{name}": state for name, state in by_name.items()}
        torch.save({"model": {}, "optimizer": {"state": wrapped}}, folder / "last.pt")
        return folder / "last.pt"
    flat = {f"{name}.{kind}": state[kind] for name, state in run.items() for kind in ("exp_avg", "exp_avg_sq", "grad")}
    if form == "safetensors":
        save_file(flat, folder / "state.safetensors")
        return folder / "state.safetensors"
    from torch.distributed.checkpoint.state_dict_saver import save

    weights = {name: state["after"] for name, state in run.items()}
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that there is one process
        save({"model": weights, "optimizer": {"state": by_name}}, checkpoint_id=folder / "dcp", no_dist=True)
    return folder / "dcp"


def cosine(a: Any, b: Any) -> float:
    a, b = (np.asarray(side, np.float64).reshape(-1) for side in (a, b))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("form", ["named", "safetensors", "dcp"])
def test_figures_are_those_of_the_dense_definitions(
    tmp_path: Path, run: dict[str, dict[str, torch.Tensor]], form: str
) -> None:
    sides: list[dict[str, Tensor]] = [
        {n: ("F32", s[side].numpy().view(np.uint32)) for n, s in run.items()} for side in ("before", "after")
    ]
    # Updates are kept between bf16 numbers: both sides are cut to those.
    sides = [{n: ("BF16", (bits >> 16).astype(np.uint16)) for n, (_, bits) in side.items()} for side in sides]
    source, target = (open_checkpoint(make_checkpoint(tmp_path / str(n), side)) for n, side in enumerate(sides))
    artifact = extracted(tmp_path, source, target)
    with open_moments(saved(tmp_path / "state", run, form)) as state:
        document = measure_moments(state, artifact, source)
    assert set(document["tensors"]) == set(SHAPES)
    spreads = []
    for name, tensors in run.items():
        row = document["tensors"][name]
        m, v = (tensors[kind].double().numpy() for kind in ("exp_avg", "exp_avg_sq"))
        before, after = ((side[name][1].astype(np.uint32) << 16).view(np.float32) for side in sides)
        update = after.astype(np.float64) - before
        spreads.append(np.sqrt(v).std() / np.sqrt(v).mean())
        assert row["v_spread"] == pytest.approx(spreads[-1], rel=1e-9)
        assert row["v_zero"] == 4 / v.size
        assert row["m_update"] == pytest.approx(cosine(-m, update), rel=1e-9)
        assert row["step_update"] == pytest.approx(cosine(-m / (np.sqrt(v) + 1e-8), update), rel=1e-9)
        truth = pytest.approx(cosine(m, tensors["grad"]), rel=1e-6) if form == "safetensors" else None
        assert row["m_gradient"] == truth
    assert document["total"]["figures"]["v_spread"]["mean"] == pytest.approx(np.mean(spreads))
    whole = np.concatenate([tensors["exp_avg_sq"].double().numpy().reshape(-1) for tensors in run.values()])
    pooled = document["total"]["figures"]["v_spread"]["pooled"]
    assert pooled == pytest.approx(np.sqrt(whole).std() / np.sqrt(whole).mean(), rel=1e-9)
    assert document["roles"]["ffn"]["figures"]["v_spread"]["mean"] == document["tensors"][UP]["v_spread"]
    assert any("no gradient was saved" in note for note in document["notes"]) == (form != "safetensors")


def test_numbers_are_no_names(tmp_path: Path, run: dict[str, dict[str, torch.Tensor]]) -> None:
    with open_moments(saved(tmp_path, run, "numbered")) as state:
        document = measure_moments(state)
    assert list(document["tensors"]) == ["0", "1", "2"]
    assert document["roles"] == {}
    assert "numbered 3 weights" in document["notes"][0]
    v = run[UP]["exp_avg_sq"].double().sqrt()
    assert document["tensors"]["0"]["v_spread"] == pytest.approx(float(v.std(correction=0) / v.mean()), rel=1e-9)


def test_weights_can_be_selected(tmp_path: Path, run: dict[str, dict[str, torch.Tensor]]) -> None:
    with open_moments(saved(tmp_path, run, "named")) as state:
        document = measure_moments(state, selection=Selection.parse(["q_proj"], "0"))
    assert list(document["tensors"]) == [Q]


def test_what_holds_no_state_is_refused(tmp_path: Path, run: dict[str, dict[str, torch.Tensor]]) -> None:
    weights = {name: state["after"] for name, state in run.items()}
    torch.save(weights, tmp_path / "model.pt")
    save_file(weights, tmp_path / "model.safetensors")
    for name in ("model.pt", "model.safetensors"):
        with pytest.raises(FormatError, match="no state of Adam in it") as error:
            open_moments(tmp_path / name)
        assert "optimizer.pt" in error.value.hint
    with pytest.raises(NotFoundError):
        open_moments(tmp_path / "nothing")
    with pytest.raises(UsageError, match="needs files on a disk") as caught:
        open_moments("s3://bucket/optimizer.pt")
    assert "aws s3 cp" in caught.value.hint
    (tmp_path / "cut.pt").write_bytes((tmp_path / "model.pt").read_bytes()[:900])
    with pytest.raises(FormatError):
        open_moments(tmp_path / "cut.pt")
