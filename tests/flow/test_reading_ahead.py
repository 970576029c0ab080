"""Everything that goes through a checkpoint in a bucket has the next blocks on their way, and fetches little twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import Buffer

from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.bucket.path import Bucket
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import copy_tensors, write_checkpoint
from maskreg.errors import CorruptError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.extract.extraction import extract
from maskreg.flow.merge.checkpoint import MergedCheckpoint, write
from maskreg.flow.merge.recipe import Recipe
from maskreg.mask.baseline import BaselineSpec
from tests.buckets import bucket, objects_in, server, upload
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.flow.making import extracted
from tests.servers import S3Server

__all__ = ["bucket", "server"]

AHEAD = "maskreg-bucket"
"""Threads that fetch what was expected."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Path, Path]:
    """Tensors of several blocks, of several leaves, and of less than one, in two files each."""
    source = {
        "model.layers.0.mlp.up_proj.weight": bf16((150, 32768), 1),
        "model.layers.0.mlp.down_proj.weight": bf16((300, 4096), 2),
        **{f"model.layers.{number}.input_layernorm.weight": bf16((4096,), number) for number in range(30)},
    }
    target = {name: moved(tensor, 0.2, seed=number) for number, (name, tensor) in enumerate(source.items())}
    folders = {"source": source, "target": target}
    made = [make_checkpoint(folder / name, tensors, shards=2) for name, tensors in folders.items()]
    return made[0], made[1]


@pytest.fixture(scope="module")
def artifact(pair: tuple[Path, Path], folder: Path) -> Artifact:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        return extracted(folder / "home", source, target)


@pytest.fixture(scope="module")
def stored(s3_server: S3Server, bucket: str, pair: tuple[Path, Path]) -> list[BucketPath]:
    """The pair in the bucket."""
    return [upload(s3_server, folder, bucket, folder.name) for folder in pair]


def extracting(artifact: Artifact, source: Checkpoint, target: Checkpoint, folder: Path) -> None:
    assert extract(source, target, folder / "again").digest == artifact.digest


def merging_by_rows(artifact: Artifact, source: Checkpoint, target: Checkpoint, folder: Path) -> None:
    with MergedCheckpoint([artifact], source, Recipe.of("ties", [1.0], {})) as merged:
        write(merged, folder / "merged")


def copying(artifact: Artifact, source: Checkpoint, target: Checkpoint, folder: Path) -> None:
    plan = plan_like(source)
    with write_checkpoint(folder / "copy", plan) as writer:
        copy_tensors(source, plan, writer)


LOWEST = BaselineSpec.of("low-magnitude")
PASSES: dict[str, tuple[float, Callable[[Artifact, Checkpoint, Checkpoint, Path], object]]] = {
    "extracting": (2, extracting),
    "applying": (1.5, lambda artifact, source, _, folder: apply(artifact, source, folder / "out")),
    "ranking": (3.5, lambda artifact, source, _, folder: make_baseline(artifact, LOWEST, folder / "home", source)),
    "merging by rows": (4.5, merging_by_rows),
    "copying": (1, copying),
}
"""How often the bytes of one checkpoint are fetched: the first and the last leaf of each tensor once more."""


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("kind", PASSES)
def test_the_next_blocks_are_on_their_way(
    kind: str, artifact: Artifact, stored: list[BucketPath], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, ahead, waited = Bucket.read, list[int](), list[int]()

    def counted(self: Bucket, key: str, start: int, stop: int, etag: str = "") -> Buffer:
        (ahead if threading.current_thread().name.startswith(AHEAD) else waited).append(stop - start)
        return read(self, key, start, stop, etag)

    times, work = PASSES[kind]
    monkeypatch.setattr(Bucket, "read", counted)
    with open_checkpoint(stored[0]) as source, open_checkpoint(stored[1]) as target:
        size = sum(info.nbytes for info in source.tensors.values())
        waited.clear()
        work(artifact, source, target, tmp_path)
    # Only small files are waited for.
    assert all(length < 1000 for length in waited)
    assert sum(ahead) <= times * size + 100_000
    # Thirty norms are one request in each file.
    assert len(ahead) < 12 * times


@pytest.mark.usefixtures("server")
def test_a_shard_that_is_replaced_meanwhile_is_no_source(
    s3_server: S3Server, bucket: str, pair: tuple[Path, Path], stored: list[BucketPath], tmp_path: Path
) -> None:
    replaced = upload(s3_server, pair[1], bucket, "replaced")
    with open_checkpoint(stored[0]) as source, open_checkpoint(replaced) as target:
        key = next(path.key for path in replaced.iterdir() if path.suffix == ".safetensors")
        data = bytearray(objects_in(s3_server, bucket, key)[key])
        data[-1] ^= 1
        s3_server.client.put_object(Bucket=bucket, Key=key, Body=bytes(data))
        with pytest.raises(CorruptError, match="model-00001-of-00002"):
            extract(source, target, tmp_path / "home")
    assert not list((tmp_path / "home").glob("artifacts/*/*"))
