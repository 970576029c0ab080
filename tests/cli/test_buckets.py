"""Checkpoints in buckets, and what people get wrong with them: the sentence, the next step, the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.buckets import bucket, server, upload
from tests.checkpoints import make_checkpoint
from tests.cli.conftest import Run, tensors
from tests.servers import SeaweedFS

__all__ = ["bucket", "server"]

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00002.safetensors"

READS: Mapping[str, tuple[str, int, str, str]] = {
    "another bucket": ("s3://no-such-bucket/run", 66, "s3://no-such-bucket: there is no such bucket", "aws s3 ls"),
    "another prefix": ("{run}/lost/x", 66, "{run}/lost/x: no such object or prefix", "aws s3 ls {run}/"),
    "too far up": ("{run}/", 66, "no weights here, but in", "{run}/"),
    "without its index": ("{run}/no-index", 65, f"but no {INDEX}", INDEX),
    "without a shard": ("{run}/no-shard", 66, f"{SHARD}: a file of the checkpoint is missing", "ls {run}/no-shard/"),
    "its index": ("{run}/model/" + INDEX, 65, f"{INDEX}: the index of a checkpoint, not weights", "{run}/model"),
    "another scheme": ("S3A://user:secret@team/x", 78, "S3A://... is not a URL of object storage", "write s3://"),
}
"""What is given for a target, the exit code, the sentence and the next step."""


@pytest.fixture
def stored(server: SeaweedFS, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A checkpoint in a bucket, whole and with a file missing."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    folder = make_checkpoint(tmp_path / "model", tensors(), shards=2)
    names = {"run": f"s3://{bucket}/{tmp_path.name}", "bucket": f"s3://{bucket}"}
    for name, missing in (("model", ""), ("no-index", INDEX), ("no-shard", SHARD)):
        upload(server, folder, bucket, f"{tmp_path.name}/{name}")
        if missing:
            server.client.delete_object(Bucket=bucket, Key=f"{tmp_path.name}/{name}/{missing}")
    return names


@pytest.mark.parametrize("name", READS)
def test_what_cannot_be_read_says_what_to_do(run: Run, stored: Mapping[str, str], name: str) -> None:
    url, status, fault, hint = READS[name]
    done = run("extract", f"{stored['run']}/model", url.format(**stored), "--name", "a:b", status=status)
    error, _, step = done.err.partition("next: ")
    assert fault.format(**stored) in error
    assert hint.format(**stored) in step
    assert "secret" not in done.err


@pytest.mark.parametrize("words", [("apply", "-o"), ("convert", "--to", "sparse-safetensors", "-o")])
def test_an_output_goes_to_a_disk(run: Run, artifact: str, words: tuple[str, ...]) -> None:
    command, *options = words
    assert "s3://team/x" in run(command, artifact, *options, "s3://team/x", status=2).err
    assert not Path("s3:").exists()
