"""Checkpoints in a bucket, for tests: folders that are copied there, and changed there."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from maskreg.bucket import BucketPath
from maskreg.settings import StoreOptions
from tests.servers import S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def upload(server: S3Server, folder: Path, bucket: str, prefix: str) -> BucketPath:
    """Copy a folder with all below it under a prefix, and give the path there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client_of(server).upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder)}")
    return BucketPath.of(f"s3://{bucket}/{prefix}", options_of(server))


def options_of(server: S3Server) -> StoreOptions:
    """How to talk to the server; its credentials are in the environment."""
    return StoreOptions(endpoint=server.endpoint)


@cache
def client_of(server: S3Server) -> S3Client:
    """boto3's client of the server, which lives as long as the tests: to make one takes longer than what it does."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    )


def objects_in(server: S3Server, bucket: str, prefix: str = "") -> dict[str, bytes]:
    """Every object below a prefix, by key."""
    client = client_of(server)
    rows = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {row["Key"]: client.get_object(Bucket=bucket, Key=row["Key"])["Body"].read() for row in rows}


@pytest.fixture
def server(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server whose credentials are in the environment."""
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """An empty bucket."""
    return s3_server.new_bucket()
