"""Checkpoints that workers write to a bucket: they send the parts, and the driver completes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import drop_abandoned
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writer import CheckpointWriter, Part
from maskreg.checkpoint.writing import _blocks, write_checkpoint
from maskreg.engine import ENGINES, running_on
from maskreg.errors import WrongCheckpointError
from maskreg.flow.apply.on_disk import apply
from tests.buckets import client_of, objects_in, options_of
from tests.buckets import server as server
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.engine.subprocesses import SubprocessEngine
from tests.flow.making import extracted
from tests.servers import S3Server

PART = 16 << 20


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.checkpoint.writer.SENT_BYTES", PART)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Path, Artifact]:
    """Source, target and artifact: two files, of 35 and of 12 MiB."""
    folder = tmp_path_factory.mktemp("models")
    source = {f"model.layers.{n}.mlp.up_proj.weight": bf16((1500, 4096), n) for n in range(4)}
    source |= {f"model.layers.{n}.input_layernorm.weight": bf16((4096,), n) for n in range(4)}
    target = {name: moved(tensor, 0.2, seed=n) for n, (name, tensor) in enumerate(source.items())}
    made = [make_checkpoint(folder / name, t, shards=2) for name, t in (("source", source), ("target", target))]
    opened = open_checkpoint(made[0])
    return opened, made[1], extracted(folder / "home", opened, open_checkpoint(made[1]))


@pytest.fixture
def elsewhere(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has the server's credentials, as each machine of a cluster has them."""
    engine = SubprocessEngine()
    monkeypatch.setitem(ENGINES, "subprocess", lambda address, workers, label: engine)
    with running_on("subprocess"):
        yield
    engine.end()


@pytest.mark.usefixtures("elsewhere")
def test_workers_send_what_threads_do(models: tuple[Checkpoint, Path, Artifact], server: S3Server) -> None:
    bucket = server.new_bucket()
    out = BucketPath.of(f"s3://{bucket}/out", options_of(server))
    apply(models[2], models[0], out)
    written = {key.removeprefix("out/"): data for key, data in objects_in(server, bucket).items()}
    assert written == {path.name: path.read_bytes() for path in models[1].iterdir()}
    assert drop_abandoned(out, idle=timedelta(0)) == ()


@pytest.mark.usefixtures("elsewhere")
def test_what_fails_leaves_neither_objects_nor_parts(
    models: tuple[Checkpoint, Path, Artifact], server: S3Server, tmp_path: Path
) -> None:
    source, _, artifact = models
    bad = {name: source.read(name, 0, info.numel) for name, info in source.tensors.items()}
    bad["model.layers.3.mlp.up_proj.weight"][3_000_000] ^= 1  # neither in the first leaf nor in the last
    tensors = {name: ("BF16", values.reshape(source.tensors[name].shape)) for name, values in bad.items()}
    bucket = server.new_bucket()
    out = BucketPath.of(f"s3://{bucket}/out", options_of(server))
    with (
        open_checkpoint(make_checkpoint(tmp_path / "bad", tensors, shards=2)) as wrong,
        pytest.raises(WrongCheckpointError, match=r"layers\.3\.mlp"),
    ):
        apply(artifact, wrong, out)
    assert objects_in(server, bucket) == {}
    assert drop_abandoned(out, idle=timedelta(0)) == ()


def sizes_of_parts(server: S3Server, bucket: str) -> list[list[int]]:
    """Of each upload that goes on, by key: bytes of its parts, in order."""
    client = client_of(server)
    uploads = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    parts = [
        client.list_parts(Bucket=bucket, Key=row["Key"], UploadId=row["UploadId"])["Parts"]
        for row in sorted(uploads, key=lambda row: row["Key"])
    ]
    # A part that was sent twice can be listed twice.
    sizes = [{part["PartNumber"]: part["Size"] for part in own} for own in parts]
    return [[size for _, size in sorted(own.items())] for own in sizes]


def test_a_part_may_be_sent_twice(
    models: tuple[Checkpoint, Path, Artifact], server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker dies after it has sent a part, and another one does its work again."""
    source, bucket = models[0], server.new_bucket()
    monkeypatch.setattr("maskreg.checkpoint.writer.is_here", lambda: False)
    plan = plan_like(source)
    with write_checkpoint(BucketPath.of(f"s3://{bucket}/out", options_of(server)), plan) as writer:
        worker: CheckpointWriter = pickle.loads(pickle.dumps(writer))  # noqa: S301 - pickled here
        parts: list[Part | None] = []
        for piece in writer.pieces(_blocks(plan)):
            made = [(task, source.read(task.name, task.start, task.stop).tobytes()) for task in piece.tasks]
            data = b"".join(values[piece.own(task)] for task, values in made)
            assert piece.part is not None
            receipts = {worker.send(piece.part, bytearray(data)) for _ in range(2)}
            assert len(receipts) == 1
            writer.sent(piece.part, receipts.pop())
            writer.wrote(max(piece.start, piece.tasks[0].offset), len(data))
            parts.append(piece.part)
        sizes = sizes_of_parts(server, bucket)
    assert parts == [(0, 0), (0, 1), (0, 2), (1, 0)]
    # Some services take parts of one size alone, but for the last.
    assert [own[:-1] for own in sizes] == [[PART, PART], []]
    assert all(0 < own[-1] < PART for own in sizes)
    assert isinstance(source.path, Path)
    written = {key.removeprefix("out/"): data for key, data in objects_in(server, bucket).items()}
    assert written == {path.name: path.read_bytes() for path in source.path.iterdir()}
