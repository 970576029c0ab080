"""The stores that every contract test runs over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from maskreg.settings.credentials import VARIABLE
from maskreg.store import FileStore, Store
from maskreg.store.http import HttpStore
from maskreg.store.s3 import S3Store
from tests.buckets import log_in, options_of
from tests.servers import S3Server
from tests.service.serving import ADMIN, Switched, server, service_in, service_on
from tests.store.memory import MemoryStore

__all__ = ["server"]


@pytest.fixture(scope="session")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def s3_store(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    log_in(s3_server, monkeypatch)
    with closing(S3Store(bucket, f"team/{uuid4().hex}", options_of(s3_server))) as store:
        yield store


@pytest.fixture
def other_s3_store(other_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    log_in(other_s3_server, monkeypatch)
    with closing(S3Store(other_s3_server.new_bucket(), f"team/{uuid4().hex}", options_of(other_s3_server))) as store:
        yield store


@pytest.fixture
def http_store(server: Switched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpStore]:
    """A service over a folder, asked by its admin."""
    monkeypatch.setenv(VARIABLE, ADMIN)
    with server.serving(service_in(tmp_path / "served")), closing(HttpStore(server.url)) as store:
        yield store


@pytest.fixture
def http_s3_store(
    server: Switched, s3_store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HttpStore]:
    """A service over a bucket, asked by its admin."""
    monkeypatch.setenv(VARIABLE, ADMIN)
    with server.serving(service_on(s3_store, tmp_path)), closing(HttpStore(server.url)) as store:
        yield store


OWN = ("file", "memory", "s3", "other_s3")
"""Stores that check nothing of what is written."""

SERVED = ("http", "http_s3")
"""Stores behind a service, which refuses entries that break the rules of the log: tests of those are the service's."""


@pytest.fixture(params=("file", "s3"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store that checks nothing of what is written."""
    return empty_store(request.param, request, tmp_path)


def empty_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """An empty store of a kind."""
    if kind == "file":
        return FileStore(folder / "store")
    if kind == "memory":
        return MemoryStore()
    result: Store = request.getfixturevalue(f"{kind}_store")
    return result
