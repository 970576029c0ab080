"""Pairs in a bucket: the same artifacts and the same outputs as on a disk, by requests for what is needed."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from maskreg.bucket import BucketPath
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from tests.buckets import bucket, client_of, objects_in, server, upload
from tests.checkpoints import make_pair
from tests.flow.making import extracted
from tests.servers import S3Server

__all__ = ["bucket", "server"]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return make_pair(tmp_path, shards=3)


@pytest.fixture
def stored(server: S3Server, bucket: str, pair: tuple[Path, Path]) -> tuple[BucketPath, BucketPath]:
    """The pair in the bucket."""
    run = uuid4().hex
    source, target = (upload(server, folder, bucket, f"{run}/{folder.name}") for folder in pair)
    return source, target


def test_the_artifact_is_the_same(
    pair: tuple[Path, Path], stored: tuple[BucketPath, BucketPath], tmp_path: Path
) -> None:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        expected = extract(source, target, tmp_path / "disk", reversible=True).digest
    with open_checkpoint(stored[0]) as source, open_checkpoint(stored[1]) as target:
        assert extract(source, target, tmp_path / "home", reversible=True).digest == expected


def test_what_is_applied_is_the_target(
    server: S3Server, bucket: str, pair: tuple[Path, Path], stored: tuple[BucketPath, BucketPath], tmp_path: Path
) -> None:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        artifact = extracted(tmp_path / "home", source, target, reversible=True)
    out = BucketPath(stored[0].bucket, uuid4().hex)
    with open_checkpoint(stored[0]) as source:
        apply(artifact, source, out)
    with open_checkpoint(stored[0]) as wrong, pytest.raises(WrongCheckpointError):
        apply(artifact, wrong, out.parent / f"{out.name}-back", revert=True)
    written = {key.removeprefix(f"{out.key}/"): data for key, data in objects_in(server, bucket, f"{out.key}/").items()}
    assert written == {path.name: path.read_bytes() for path in pair[1].iterdir()}
    assert objects_in(server, bucket, f"{out.key}-back") == {}


def test_a_shard_that_is_replaced_meanwhile_is_no_source(
    server: S3Server, bucket: str, stored: tuple[BucketPath, BucketPath], tmp_path: Path
) -> None:
    with open_checkpoint(stored[0]) as source, open_checkpoint(stored[1]) as target:
        key = next(path.key for path in stored[1].iterdir() if path.suffix == ".safetensors")
        data = bytearray(objects_in(server, bucket, key)[key])
        data[-1] ^= 1
        client_of(server).put_object(Bucket=bucket, Key=key, Body=bytes(data))
        with pytest.raises(CorruptError, match="replaced by another object"):
            extract(source, target, tmp_path / "home")
    assert not list((tmp_path / "home").glob("artifacts/*/*"))
