"""Merging on a real cluster: into a folder, a bucket and an artifact, as on threads whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.engine import running_on
from maskreg.flow.merge.checkpoint import MergedCheckpoint, write
from maskreg.flow.merge.recipe import Recipe
from maskreg.parallel import batches
from maskreg.progress import SILENT, Progress
from tests.buckets import objects_in, options_of
from tests.buckets import server as server
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.clusters import Killing
from tests.flow.making import extracted
from tests.servers import S3Server


@dataclass(frozen=True)
class Operands:
    """A source, and two artifacts of it."""

    source: Checkpoint
    artifacts: tuple[Artifact, Artifact]

    def merged(self, progress: Progress) -> MergedCheckpoint:
        """A model that is swept over before it is merged."""
        recipe = Recipe.of("ties", [1.0, 1.0], {"density": 0.5})
        return MergedCheckpoint(self.artifacts, self.source, recipe, progress=progress)


@pytest.fixture(scope="module")
def operands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operands]:
    folder = tmp_path_factory.mktemp("operands")
    tensor = bf16((1 << 20,), 1)
    source = {f"model.layers.{n}.mlp.up_proj.weight": tensor for n in range(24)}
    targets = [dict.fromkeys(source, moved(tensor, 0.1, seed)) for seed in (1, 2)]
    paths = [make_checkpoint(folder / str(n), tensors, shards=2) for n, tensors in enumerate([source, *targets])]
    with open_checkpoint(paths[0]) as opened:
        artifacts = []
        for path in paths[1:]:
            with open_checkpoint(path) as target:
                artifacts.append(extracted(folder / "home", opened, target))
        yield Operands(opened, (artifacts[0], artifacts[1]))


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor goes alone, so that something is left to do when a worker dies."""
    monkeypatch.setattr("maskreg.engine.ray.batches", lambda tasks, size, most, near: batches(tasks, size, 1, near))


def in_folder(operands: Operands, out: Path, sweep: Progress, writing: Progress) -> dict[str, bytes]:
    with operands.merged(sweep) as model:
        write(model, out, progress=writing)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_workers_send_what_threads_write(
    operands: Operands,
    server: S3Server,
    nodes_with_credentials: Callable[[S3Server], None],
    ray_cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a node that dies after it has sent parts, or while it does."""
    monkeypatch.setattr("maskreg.checkpoint.writer.SENT_BYTES", 5 << 20)
    nodes_with_credentials(server)
    bucket = server.new_bucket()
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=200 << 20)
    expected = in_folder(operands, tmp_path / "threads", SILENT, SILENT)
    writing = Killing(lambda: ray_cluster.remove_node(node, allow_graceful=False))
    with running_on("ray", workers=5), operands.merged(SILENT) as model:
        write(model, BucketPath.of(f"s3://{bucket}/out", options_of(server)), progress=writing)
    assert writing.has_killed
    written = {key.removeprefix("out/"): data for key, data in objects_in(server, bucket).items()}
    assert written == expected
