"""A run measured over its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from maskreg.flow.geometry.measuring import WORK
from maskreg.flow.geometry.trajectory import ON_REQUEST, _Measurer, trajectory
from maskreg.progress import Silent
from tests.checkpoints import Tensor, make_checkpoint
from tests.flow.making import extracted

NAME = "model.layers.0.mlp.up_proj.weight"
NORM = "model.norm.weight"


def made(path: Path, **tensors: np.ndarray) -> Checkpoint:
    names = {"w": NAME, "norm": NORM}
    stored: dict[str, Tensor] = {
        names[key]: ("F32", value.astype(np.float32).view(np.uint32)) for key, value in tensors.items()
    }
    return open_checkpoint(make_checkpoint(path, stored))


def test_a_run_along_one_direction_and_then_another(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    start, norm = rng.normal(0, 0.03, (64, 96)), np.ones(8)
    basis = np.linalg.qr(rng.normal(size=(96, 48)))[0]
    left = np.linalg.qr(rng.normal(size=(64, 48)))[0]
    first, second = left[:, :16] @ basis[:, :16].T, left[:, 16:32] @ basis[:, 16:32].T
    source = made(tmp_path / "0", w=start, norm=norm)
    points = [first, first + 1e-6 * second, 1e-6 * first + second]
    run = [made(tmp_path / str(n), w=start + update, norm=norm) for n, update in enumerate(points, start=1)]
    document = trajectory(source, run)
    rows = document["checkpoints"]
    assert document["similarity_by_chance"] == pytest.approx(16 / 96)
    assert [row["similarity_to_final"] for row in rows] == pytest.approx([0, 0, 1], abs=1e-4)
    assert [row["stable_rank"] for row in rows] == [pytest.approx(16, rel=1e-3)] * 3
    assert rows[0]["update_norm"] == pytest.approx(4, rel=1e-3)
    assert rows[0]["relative_norm"] == pytest.approx(4 / np.sqrt((start**2).sum() + 8), rel=1e-3)
    assert rows[0]["step_norm"] == rows[0]["update_norm"]
    assert rows[2]["step_norm"] == pytest.approx(np.sqrt(32), rel=1e-3)
    assert rows[1]["step_density"] < 0.01 < rows[1]["density"]
    assert rows[0]["matrices"] == 1


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("role", ["ffn", "norm"]),
        ("layer", ["0", ""]),
        ("module", ["mlp.up_proj", "model.norm"]),
        ("tensor", [NAME, NORM]),
    ],
)
def test_groups_of_tensors_are_followed_too(tmp_path: Path, by: str, labels: list[str]) -> None:
    rng = np.random.default_rng(1)
    start, norm, update = rng.normal(0, 0.03, (32, 24)), np.ones(8), rng.normal(0, 0.01, (32, 24))
    source = made(tmp_path / "0", w=start, norm=norm)
    run = [made(tmp_path / str(n), w=start + n * update, norm=norm + n) for n in (1, 2)]
    document = trajectory(source, run, by=by)
    assert (document["by"], set(document["groups"])) == (by, set(labels))
    # Each is what following its tensors alone gives.
    for key, label in zip(({"w": start}, {"norm": norm}), labels, strict=True):
        alone = [made(tmp_path / f"{label}-{n}", **{k: v + n * (update if k == "w" else 1) for k, v in key.items()})
                 for n in range(3)]  # fmt: skip
        expected = trajectory(alone[0], alone[1:])
        group = document["groups"][label]
        assert group["similarity_by_chance"] == expected["similarity_by_chance"]
        for row, other in zip(group["checkpoints"], expected["checkpoints"], strict=True):
            assert {**row, "checkpoint": ""} == {**other, "checkpoint": ""}
    assert trajectory(source, run)["groups"] == {}
    with pytest.raises(UsageError, match="'size'"):
        trajectory(source, run, by="size")


def test_a_checkpoint_that_did_not_move_has_no_rank(tmp_path: Path) -> None:
    start = np.random.default_rng(0).normal(0, 0.03, (32, 24))
    source = made(tmp_path / "0", w=start)
    run = [made(tmp_path / "1", w=start), made(tmp_path / "2", w=start + 0.01)]
    row = trajectory(source, run)["checkpoints"][0]
    assert (row["density"], row["stable_rank"], row["similarity_to_final"], row["update_norm"]) == (0, None, None, 0)


def test_two_checkpoints_at_least_of_the_same_form(tmp_path: Path) -> None:
    start = np.random.default_rng(0).normal(0, 0.03, (32, 24))
    source = made(tmp_path / "0", w=start, norm=np.ones(4))
    with pytest.raises(UsageError):
        trajectory(source, [made(tmp_path / "1", w=start, norm=np.ones(4))])
    other = made(tmp_path / "2", w=start.T, norm=np.ones(4))
    less = made(tmp_path / "3", w=start)
    for wrong in (other, less):
        with pytest.raises(WrongCheckpointError):
            trajectory(source, [wrong, source])


def test_figures_along_a_run_are_those_of_an_analysis(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    start = rng.normal(0, 0.03, (40, 48))
    states = [start, *(start + step * rng.standard_t(4, start.shape) * 1e-3 for step in (1, 3))]
    source, *run = (made(tmp_path / str(n), w=state, norm=np.ones(8)) for n, state in enumerate(states))
    asked: dict[str, Any] = {"presets": ("small", "geo"), "ranks": (4,)}
    document = trajectory(source, run, analysis_spec(metrics=sorted(ON_REQUEST), **asked), by="role")
    for row, target in zip(document["checkpoints"], run, strict=True):
        artifact = extracted(tmp_path / "home", source, target, mask_only=True)
        total: Any = analyze(artifact, source, target, tmp_path / "home", analysis_spec(**asked)).document["total"]
        for name, figure in row["figures"].items():
            assert figure["mean"] == pytest.approx(total["figures"][name]["mean"], rel=1e-4), name
        for name, share in row["concentration"].items():
            assert share == pytest.approx(total["concentration"][name]["value"], rel=1e-4), name
    ffn = document["groups"]["ffn"]["checkpoints"]
    assert [row["figures"] for row in ffn] == [row["figures"] for row in document["checkpoints"]]
    assert document["groups"]["norm"]["checkpoints"][0]["figures"] == {}
    assert document["groups"]["norm"]["checkpoints"][0]["concentration"]["concentration_1pct"] is None
    cheap = trajectory(source, run)["checkpoints"][0]
    assert set(cheap["figures"]) == {"spectral_norm", "hill"}
    assert cheap["concentration"] == {}


def test_a_trajectory_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    start, norm = rng.normal(0, 0.03, (32, 24)), np.ones(8)
    source = made(tmp_path / "0", w=start, norm=norm)
    run = [made(tmp_path / str(n), w=start + n * rng.normal(0, 0.01, (32, 24)), norm=norm + n) for n in (1, 2)]
    spec = analysis_spec(metrics=tuple(ON_REQUEST), ranks=(4,))

    class Stop(Silent):
        def advance(self, n_bytes: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trajectory(source, run, spec, root=tmp_path, progress=Stop())
    (piece,) = (tmp_path / WORK).rglob("*.json")
    measured: list[object] = []
    measure = _Measurer.measure

    def counted(self: _Measurer, source: Any) -> Any:
        measured.append(source)
        return measure(self, source)

    monkeypatch.setattr(_Measurer, "measure", counted)
    # The tensor that was finished is not measured again, in any groups; the figures are the same.
    assert trajectory(source, run, spec, by="role", root=tmp_path) == trajectory(source, run, spec, by="role")
    assert len(measured) == 1 + 2
    assert not list((tmp_path / WORK).iterdir())
    # Another file is another measurement, and so is a damaged piece.
    with pytest.raises(KeyboardInterrupt):
        trajectory(source, run, spec, root=tmp_path, progress=Stop())
    made(tmp_path / "2", w=start, norm=norm + 5)
    other = [run[0], open_checkpoint(tmp_path / "2")]
    assert trajectory(source, other, spec, root=tmp_path) == trajectory(source, other, spec)
    piece.write_bytes(piece.read_bytes()[:50])
    assert trajectory(source, [run[0], other[1]], spec, root=tmp_path) == trajectory(source, other, spec)
