"""Small real runs: what distillation and reinforcement learning left in a model of five million parameters.

The figures beside which these are asserted were measured by other code. They agree as far as they are told, with the
choices that each test names.
"""

from __future__ import annotations

from typing import Any

import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.extract.extraction import extract
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from maskreg.flow.geometry.trajectory import trajectory
from maskreg.store.file import FileStore
from tests.tiny import TINY, needs_tiny

pytestmark = needs_tiny


@pytest.fixture(scope="module", params=["opd", "rlvr"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A run's name, and the analysis of its update."""
    root = tmp_path_factory.mktemp(request.param)
    source, target = open_checkpoint(TINY / "source"), open_checkpoint(TINY / request.param)
    artifact = Artifact.open(FileStore(root), extract(source, target, root).digest)
    return request.param, analyze(artifact, source, None, root, analysis_spec(ranks=(16,))).document


def told(run: tuple[str, Any], opd: float, rlvr: float, within: float) -> Any:
    return pytest.approx(opd if run[0] == "opd" else rlvr, rel=within)


def test_low_magnitude_coverage(run: tuple[str, Any]) -> None:
    # Attention and FFN alone, pooled over coordinates. The embedding, which moves where it is smallest, and the
    # unweighted mean over matrices give some points more.
    assert run[1]["total"]["figures"]["low_geo_0.30@rel:0.001"]["weighted"] == told(run, 0.515, 0.766, 0.005)


def test_principal_coverage(run: tuple[str, Any]) -> None:
    # Attention and FFN alone, pooled over coordinates, at rank 16.
    groups = [run[1]["roles"][role] for role in ("attention", "ffn")]
    figures = [group["figures"]["principal_small_0.30@exact"]["weighted"] for group in groups]
    weights = [group["moved"]["exact"] for group in groups]
    pooled = sum(f * w for f, w in zip(figures, weights, strict=True)) / sum(weights)
    assert pooled == told(run, 0.250, 0.217, 0.01)


def test_the_largest_principal_angle(run: tuple[str, Any]) -> None:
    assert run[1]["total"]["figures"]["angle_max_u_16"]["max"] == told(run, 6.3, 1.3, 0.03)


def test_the_spectrum_shifts_by_as_much(run: tuple[str, Any]) -> None:
    assert run[1]["total"]["figures"]["nss"]["mean"] == told(run, 2.4e-4, 7.4e-5, 0.05)


def test_density_and_its_null(run: tuple[str, Any]) -> None:
    sparsity = run[1]["total"]["sparsity"]["exact"]
    assert 1 - sparsity["value"] == told(run, 0.468, 0.249, 0.002)
    # Fitted in expectation, per tensor.
    assert sparsity["null"] == pytest.approx(sparsity["value"], abs=0.002)


def test_rounding_alone_gives_most_of_the_coverage_and_none_of_the_low_rank(run: tuple[str, Any]) -> None:
    figures = run[1]["total"]["figures"]
    low = figures["low_geo_0.30@rel:0.001"]
    assert low["null_mean"] == pytest.approx(low["mean"], rel=0.03)
    assert figures["stable_rank"]["mean"] < 0.1 * figures["stable_rank"]["null_mean"]
    assert figures["projection_lift_0.10"]["mean"] > 10 * figures["projection_lift_0.10"]["null_mean"]


def test_a_run_of_all_weights_is_not_taken_for_a_merged_adapter(run: tuple[str, Any]) -> None:
    assert sum(row["merged"] for row in run[1]["tensors"]) == 0
    assert not any("merged LoRA" in note for note in run[1]["notes"])


def test_a_trajectory_ends_where_it_ends() -> None:
    source, *checkpoints = (open_checkpoint(TINY / name) for name in ("source", "rlvr", "opd"))
    rows = trajectory(source, checkpoints)["checkpoints"]
    assert [row["density"] for row in rows] == [pytest.approx(0.249, abs=1e-3), pytest.approx(0.468, abs=1e-3)]
    assert rows[1]["similarity_to_final"] == pytest.approx(1)
    assert rows[0]["similarity_to_final"] < 0.5
