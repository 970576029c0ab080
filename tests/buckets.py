"""Buckets for tests: their credentials, stores in them, and checkpoints that are copied there and changed there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from maskreg.bucket import BucketPath
from maskreg.settings import StoreOptions
from maskreg.store.s3 import S3Store
from tests.servers import S3Server


def upload(server: S3Server, folder: Path, bucket: str, prefix: str) -> BucketPath:
    """Copy a folder with all below it under a prefix, and give the path there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            server.client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder)}")
    return BucketPath.of(f"s3://{bucket}/{prefix}", options_of(server))


def options_of(server: S3Server) -> StoreOptions:
    """How to talk to the server; its credentials are in the environment."""
    return StoreOptions(endpoint=server.endpoint)


def objects_in(server: S3Server, bucket: str, prefix: str = "") -> dict[str, bytes]:
    """Every object below a prefix, by key."""
    client = server.client
    rows = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {row["Key"]: client.get_object(Bucket=bucket, Key=row["Key"])["Body"].read() for row in rows}


def log_in(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the server's address and credentials into the environment."""
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)


def new_store(server: S3Server) -> closing[S3Store]:
    """A store in a new bucket of a server whose credentials are in the environment."""
    return closing(S3Store(server.new_bucket(), "team", options_of(server)))


@pytest.fixture
def server(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server whose credentials are in the environment."""
    log_in(s3_server, monkeypatch)
    return s3_server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """An empty bucket."""
    return s3_server.new_bucket()
