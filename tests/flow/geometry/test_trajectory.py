"""A run followed over its checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.geometry.trajectory import trajectory
from tests.checkpoints import Tensor, make_checkpoint

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
    assert [row["similarity_to_final"] for row in rows] == [
        pytest.approx(0, abs=1e-4),
        pytest.approx(0, abs=1e-4),
        pytest.approx(1, abs=1e-4),
    ]
    assert [row["stable_rank"] for row in rows] == [pytest.approx(16, rel=1e-3)] * 3
    assert rows[0]["update_norm"] == pytest.approx(4, rel=1e-3)
    assert rows[0]["relative_norm"] == pytest.approx(4 / np.sqrt((start**2).sum() + 8), rel=1e-3)
    assert rows[0]["step_norm"] == rows[0]["update_norm"]
    assert rows[2]["step_norm"] == pytest.approx(np.sqrt(32), rel=1e-3)
    assert rows[1]["step_density"] < 0.01 < rows[1]["density"]
    assert rows[0]["matrices"] == 1


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
