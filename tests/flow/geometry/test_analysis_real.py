"""Small real runs: what two distillations, which differ by their seed, left in a model of one million parameters.

Angles and densities are held against NumPy on the whole matrices. The other figures are asserted as they were when
these tests were written; their formulas are tested on matrices that are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.extract.extraction import extract
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from maskreg.flow.geometry.trajectory import trajectory
from maskreg.store.file import FileStore
from maskreg.tensors.cast import to_float
from tests.demo import DEMO


@pytest.fixture(scope="module", params=["target", "target-seed1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A run's name, and the analysis of its update."""
    root = tmp_path_factory.mktemp(request.param)
    source, target = open_checkpoint(DEMO / "source"), open_checkpoint(DEMO / request.param)
    artifact = Artifact.open(FileStore(root), extract(source, target, root).digest)
    return request.param, analyze(artifact, source, None, root, analysis_spec(ranks=(16,))).document


def sides(target: str) -> Iterator[tuple[Any, Any]]:
    """Every tensor before a run and after it, in fp64."""
    checkpoints = [open_checkpoint(DEMO / name) for name in ("source", target)]
    for name, info in checkpoints[0].tensors.items():
        before, after = (to_float(each.read(name, 0, info.numel), info.dtype) for each in checkpoints)
        yield before.reshape(info.shape).astype(np.float64), after.reshape(info.shape).astype(np.float64)


def test_density_and_its_null(run: tuple[str, Any]) -> None:
    sparsity = run[1]["total"]["sparsity"]["exact"]
    moved = sum(int(np.count_nonzero(before != after)) for before, after in sides(run[0]))
    assert 1 - sparsity["value"] == pytest.approx(moved / run[1]["total"]["numel"], rel=1e-6)
    # Fitted in expectation, per tensor.
    assert sparsity["null"] == pytest.approx(sparsity["value"], abs=0.002)


def test_rounding_alone_gives_most_of_the_coverage_and_none_of_the_low_rank(run: tuple[str, Any]) -> None:
    figures = run[1]["total"]["figures"]
    low = figures["low_geo_0.30@rel:0.001"]
    assert low["null_mean"] == pytest.approx(low["mean"], rel=0.03)
    assert figures["stable_rank"]["mean"] < 0.1 * figures["stable_rank"]["null_mean"]
    assert figures["projection_lift_0.10"]["mean"] > 10 * figures["projection_lift_0.10"]["null_mean"]


def test_a_run_of_all_weights_is_not_taken_for_a_merged_adapter(run: tuple[str, Any]) -> None:
    # One matrix of 29 does look like one, so what is said of a run takes more than one.
    assert sum(row["merged"] for row in run[1]["tensors"]) <= 1
    assert not any("merged LoRA" in note for note in run[1]["notes"])


def test_a_trajectory_ends_where_it_ends() -> None:
    source, *checkpoints = (open_checkpoint(DEMO / name) for name in ("source", "target-seed1", "target"))
    rows = trajectory(source, checkpoints)["checkpoints"]
    assert [row["density"] for row in rows] == [pytest.approx(0.4635, abs=1e-3), pytest.approx(0.4659, abs=1e-3)]
    assert rows[1]["similarity_to_final"] == pytest.approx(1)
    assert 0.5 < rows[0]["similarity_to_final"] < 0.9
