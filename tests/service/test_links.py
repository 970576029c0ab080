"""Objects that travel between clients and a bucket by signed links: no byte of them passes through the service."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from fastapi import Request

import maskreg
from maskreg.artifact.layout import artifact_prefix
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.service.api import objects
from maskreg.service.app import create_app
from maskreg.settings import Settings
from maskreg.settings.credentials import VARIABLE
from maskreg.store.base import Link
from maskreg.store.http import HttpStore
from maskreg.store.s3 import S3Store
from tests.buckets import log_in, new_store
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.servers import S3Server
from tests.service.serving import headers, listening, service_on

TOY = Ref("team", "toy", "v1")


@dataclass(frozen=True)
class Bucket:
    """A service over a bucket, and the registry of a writer who has an artifact to push."""

    url: str
    store: S3Store
    local: Registry
    digest: Digest


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    log_in(s3_server, monkeypatch)
    monkeypatch.setenv(VARIABLE, "writer-token")
    source = {"model.layers.0.mlp.up_proj.weight": bf16((1024, 2048), 1)}
    target = {name: moved(tensor, 0.5, 2) for name, tensor in source.items()}
    pair = make_checkpoint(tmp_path / "source", source), make_checkpoint(tmp_path / "target", target)
    settings = Settings(home=tmp_path / "ada", config_path=tmp_path / "config.toml")
    with (
        new_store(s3_server) as store,
        service_on(store, tmp_path / "served") as service,
        maskreg.Workspace(settings) as space,
        listening(create_app(service)) as url,
    ):
        digest = maskreg.extract(*pair, TOY, workspace=space).digest
        yield Bucket(url, store, space.local, digest)


def test_large_objects_go_from_client_to_bucket_and_back(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    stated_of = objects._stated

    def count(request: Request, limit: int) -> tuple[int, Digest]:
        size, digest = stated_of(request, limit)
        passed.append(size)
        return size, digest

    monkeypatch.setattr(objects, "_stated", count)
    monkeypatch.setattr(objects, "_pieces", lambda *_, **__: pytest.fail("bytes passed through the service"))
    with Registry(HttpStore(bucket.url), name="lab") as remote:
        sent = push(bucket.local, remote, TOY)
        assert sent.sent_bytes > 400_000
        assert max(passed) < 256 << 10
        other = Registry.local(Settings(home=tmp_path / "bob", config_path=tmp_path / "config.toml"))
        assert pull(other, remote, TOY).resolved.digest == bucket.digest
        other.close()
    assert not list(bucket.store.list("uploads/"))


def test_an_upload_of_other_bytes_is_refused_and_nothing_appears(bucket: Bucket) -> None:
    data, manifest = read_manifest(bucket.local.store, bucket.digest)
    entry = max(manifest.objects, key=lambda row: row.size)
    link = bucket.store.upload_link("uploads/x/1", entry.size, Digest(entry.sha256))
    wrong = httpx2.put(link.url, headers=link.headers, content=bytes(entry.size))
    size = entry.size + 1
    longer = httpx2.put(link.url, headers={**link.headers, "Content-Length": str(size)}, content=bytes(size))
    assert longer.status_code == 403
    bucket.store.put("uploads/x/2", bytes(entry.size))
    key = artifact_prefix(bucket.digest) + entry.key
    for staged in ["uploads/x/2", *(["uploads/x/1"] if wrong.status_code < 300 else [])]:
        with pytest.raises(CorruptError):
            bucket.store.promote(staged, key, entry.size, Digest(entry.sha256))
    assert bucket.store.head(key) is None
    with closing(HttpStore(bucket.url)) as store, pytest.raises(DataError):
        store.announce(bucket.digest, data[:-1])


def test_a_link_that_leads_nowhere_is_replaced_by_the_service_itself(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "read_link", lambda *_: "http://127.0.0.1:9/nowhere")
    monkeypatch.setattr(S3Store, "upload_link", lambda *_: Link("http://127.0.0.1:9/nowhere", {}))
    with Registry(HttpStore(bucket.url), name="lab") as remote:
        push(bucket.local, remote, TOY)
        key = next(info.key for info in bucket.store.list(artifact_prefix(bucket.digest)) if "/c/" in info.key)
        assert remote.store.get(key, max_bytes=1 << 26) == bucket.store.get(key, max_bytes=1 << 26)


def _posted(bucket: Bucket, path: str, row: dict[str, object]) -> httpx2.Response:
    return httpx2.post(f"{bucket.url}/api/v1/uploads{path}", json=row, headers=headers("writer-token"), timeout=60)


def _object(bucket: Bucket) -> tuple[dict[str, object], bytes]:
    """What is asked for to upload the largest object of the artifact, whose manifest is announced; and its bytes."""
    data, manifest = read_manifest(bucket.local.store, bucket.digest)
    with closing(HttpStore(bucket.url)) as store:
        store.announce(bucket.digest, data)
    entry = max(manifest.objects, key=lambda row: row.size)
    key = artifact_prefix(bucket.digest) + entry.key
    row = {"key": key, "size": entry.size, "sha256": f"sha256:{entry.sha256.removeprefix('sha256:')}"}
    return row, bucket.local.store.get(key, max_bytes=1 << 26)


def test_an_upload_that_is_finished_several_times_at_once_is_taken_once(bucket: Bucket) -> None:
    row, content = _object(bucket)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(12):
            link = _posted(bucket, "", row).json()
            assert httpx2.put(link["url"], headers=link["headers"], content=content).status_code == 200
            end = {"key": row["key"], "number": link["number"]}
            answers = list(pool.map(lambda _, end=end: _posted(bucket, "/finished", end), range(4)))
            assert {answer.status_code for answer in answers} == {204}, [answer.text for answer in answers]
            assert _posted(bucket, "/finished", end).status_code == 204
            assert bucket.store.get(str(row["key"]), max_bytes=1 << 26) == content
    assert not list(bucket.store.list("uploads/"))


def test_nothing_is_finished_that_was_not_uploaded(bucket: Bucket) -> None:
    row, content = _object(bucket)
    link = _posted(bucket, "", row).json()
    end = {"key": row["key"], "number": link["number"]}
    assert _posted(bucket, "/finished", end).status_code == 404
    # Not even where another writer has sent it.
    bucket.store.put(str(row["key"]), content)
    assert _posted(bucket, "/finished", end).status_code == 404


def test_links_that_are_still_good_count_before_anything_is_uploaded(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.service.gateway.incoming._UPLOADS_BYTES", 0)
    row, content = _object(bucket)
    total = sum(entry.size for entry in read_manifest(bucket.local.store, bucket.digest)[1].objects)
    most = 2 * total // len(content)
    answers = [_posted(bucket, "", row) for _ in range(most + 2)]
    assert [answer.status_code for answer in answers] == [*[200] * most, 507, 507]
    link = answers[0].json()
    assert httpx2.put(link["url"], headers=link["headers"], content=content).status_code == 200
    assert _posted(bucket, "", row).status_code == 507
    assert _posted(bucket, "/finished", {"key": row["key"], "number": link["number"]}).status_code == 204
    assert _posted(bucket, "", row).status_code == 200
    # What was never used counts no longer than it is good.
    monkeypatch.setattr("maskreg.service.gateway.incoming.LINK_SECONDS", -1)
    assert _posted(bucket, "", row).status_code == 200
