"""Figures of updates on a real cluster: what threads give, though a worker dies, and errors by the tensor's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.engine import running_on
from maskreg.errors import WrongCheckpointError
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from maskreg.flow.geometry.trajectory import ON_REQUEST, trajectory
from maskreg.progress import SILENT, Progress
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.clusters import Killing
from tests.flow.making import extracted

pytestmark = pytest.mark.usefixtures("ray_cluster")

NORM = "model.norm.weight"

WORKERS = 3
"""More than a node has CPUs, so that both nodes work."""


@dataclass(frozen=True)
class Run:
    """A source, two checkpoints of a run, and the artifact of the second."""

    source: Checkpoint
    targets: tuple[Checkpoint, Checkpoint]
    artifact: Artifact


def tensors_of(seed: int) -> dict[str, Tensor]:
    """Twice as many matrices as workers have at a time, so that something is left to do when one dies."""
    names = [f"model.layers.{n}.mlp.up_proj.weight" for n in range(4 * WORKERS)]
    source = {NORM: bf16((1 << 20,), 99)} | {name: bf16((160, 96), n) for n, name in enumerate(names)}
    return {name: moved(tensor, 0.3, seed) for name, tensor in source.items()} if seed else source


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("run")
    made = [make_checkpoint(folder / str(seed), tensors_of(seed), shards=2) for seed in range(3)]
    with open_checkpoint(made[0]) as source, open_checkpoint(made[1]) as first, open_checkpoint(made[2]) as second:
        yield Run(source, (first, second), extracted(folder / "home", source, second))


def analyzed(run: Run, root: Path, progress: Progress) -> Mapping[str, Any]:
    return analyze(run.artifact, run.source, None, root, analysis_spec(ranks=(4,)), progress=progress).document


def followed(run: Run, root: Path, progress: Progress) -> Mapping[str, Any]:
    spec = analysis_spec(metrics=sorted(ON_REQUEST), ranks=(4,))
    return trajectory(run.source, run.targets, spec, by="role", root=root, progress=progress)


def test_a_worker_that_is_killed_changes_no_figure(run: Run, tmp_path: Path) -> None:
    with running_on("ray", workers=WORKERS):
        for measure in (analyzed, followed):
            with running_on("threads"):
                expected = measure(run, tmp_path / "threads", SILENT)
            killing = Killing.worker()
            assert measure(run, tmp_path / "ray", killing) == expected
            assert killing.has_killed


def test_an_error_names_its_tensor(run: Run, tmp_path: Path) -> None:
    tensors = tensors_of(0)
    tensors[NORM][1][600_000] ^= 1  # neither in the first leaf nor in the last, which are looked at before
    with (
        open_checkpoint(make_checkpoint(tmp_path / "wrong", tensors, shards=2)) as wrong,
        running_on("ray", workers=1),
        pytest.raises(WrongCheckpointError, match=r"tensor model\.norm\.weight"),
    ):
        analyze(run.artifact, wrong, None, tmp_path / "home", analysis_spec(metrics=()))
