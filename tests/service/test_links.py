"""Signed links to a bucket: no byte of an object passes through the service, and each link is good for one thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import Request
from fastapi.testclient import TestClient

import maskreg
from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError
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
from tests.service.serving import ADMIN, WEB, headers, listening, service_on

TOY, HIDDEN = Ref("team", "toy", "v1"), Ref("secret", "hidden", "v1")


@dataclass(frozen=True)
class Bucket:
    """A service over a bucket, and the registry of a writer with an artifact to push and one that the service has."""

    url: str
    client: TestClient
    store: S3Store
    local: Registry
    digest: Digest
    hidden: Digest

    def post(self, path: str, row: dict[str, object]) -> httpx2.Response:
        url = f"{self.url}/api/v1/uploads{path}"
        return WEB.post(url, json=row, headers=headers("writer-token"))

    def announced(self) -> tuple[dict[str, object], bytes]:
        data, manifest = read_manifest(self.local.store, self.digest)
        with closing(HttpStore(self.url)) as store:
            store.announce(self.digest, data)
        entry = max(manifest.objects, key=lambda row: row.size)
        key = artifact_prefix(self.digest) + entry.key
        row = {"key": key, "size": entry.size, "sha256": str(Digest(entry.sha256))}
        return row, self.local.store.get(key, max_bytes=1 << 26)


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    log_in(s3_server, monkeypatch)
    with new_store(s3_server) as store:
        yield store


@pytest.fixture
def bucket(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv(VARIABLE, "writer-token")
    source = {"model.layers.0.mlp.up_proj.weight": bf16((1024, 2048), 1)}
    before = make_checkpoint(tmp_path / "source", source)
    settings = Settings(home=tmp_path / "ada", config_path=tmp_path / "config.toml")
    with (
        service_on(store, tmp_path / "served") as service,
        maskreg.Workspace(settings) as space,
        listening(app := create_app(service)) as url,
    ):
        digests = []
        for ref, fraction in ((TOY, 0.5), (HIDDEN, 0.1)):
            target = {name: moved(tensor, fraction, 2) for name, tensor in source.items()}
            after = make_checkpoint(tmp_path / ref.name, target)
            digests.append(maskreg.extract(before, after, ref, workspace=space).digest)
        push(space.local, service.registry, HIDDEN)
        yield Bucket(url, TestClient(app, follow_redirects=False), store, space.local, *digests)


def test_a_link_is_good_for_one_thing_with_one_object(store: S3Store) -> None:
    store.put("mine", b"mine")
    store.put("theirs", b"theirs")
    link = store.read_link("mine")
    assert WEB.get(link).content == b"mine"
    assert WEB.get(link.replace("/mine?", "/theirs?")).status_code == 403
    assert WEB.get(link.replace("Expires=900", "Expires=90000")).status_code == 403
    for method in ("PUT", "DELETE", "POST"):
        assert WEB.request(method, link, content=b"").status_code in (400, 403, 405)
    assert store.get("mine", max_bytes=10) == b"mine"


def test_a_link_for_an_upload_takes_nothing_else(store: S3Store) -> None:
    data = b"stated"
    link = store.upload_link("uploads/x/1", len(data), Digest.of(data))
    for url, sent, content in (
        (link.url, {}, data),
        (link.url, {**link.headers, "x-amz-checksum-sha256": "A" * 43 + "="}, data),
        (link.url, {**link.headers, "Content-Length": "7"}, data + b"!"),
        (link.url.replace("uploads/x/1", "artifacts/x"), link.headers, data),
    ):
        assert WEB.put(url, headers=sent, content=content).status_code in (400, 403)
    assert WEB.get(link.url).status_code == 403
    assert list(store.list("")) == []
    assert WEB.put(link.url, headers=link.headers, content=data).status_code == 200


def test_an_upload_of_other_bytes_does_not_appear(store: S3Store) -> None:
    store.put("uploads/x/1", bytes(6))
    with pytest.raises(CorruptError):
        store.promote("uploads/x/1", "artifacts/x", 6, Digest.of(b"stated"))
    assert store.head("artifacts/x") is None


def test_large_objects_go_from_client_to_bucket_and_back(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    stated_of = objects.stated_of

    def count(request: Request, limit: int) -> tuple[int, Digest]:
        size, digest = stated_of(request, limit)
        passed.append(size)
        return size, digest

    monkeypatch.setattr(objects, "stated_of", count)
    monkeypatch.setattr(objects, "pieces_of", lambda *_, **__: pytest.fail("bytes passed through the service"))
    with Registry(HttpStore(bucket.url), name="lab") as remote:
        assert push(bucket.local, remote, TOY).sent_bytes > 400_000
        assert max(passed) < 256 << 10
        with Registry.local(Settings(home=tmp_path / "bob", config_path=tmp_path / "config.toml")) as other:
            assert pull(other, remote, TOY).resolved.digest == bucket.digest
    assert not list(bucket.store.list("uploads/"))


def test_a_link_that_leads_nowhere_is_replaced_by_the_service_itself(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "read_link", lambda *_: "http://127.0.0.1:9/nowhere")
    monkeypatch.setattr(S3Store, "upload_link", lambda *_: Link("http://127.0.0.1:9/nowhere", {}))
    with Registry(HttpStore(bucket.url), name="lab") as remote:
        push(bucket.local, remote, TOY)
        key = next(info.key for info in bucket.store.list(artifact_prefix(bucket.digest)) if "/c/" in info.key)
        assert remote.store.get(key, max_bytes=1 << 26) == bucket.store.get(key, max_bytes=1 << 26)


def test_an_upload_that_is_finished_several_times_at_once_is_taken_once(bucket: Bucket) -> None:
    row, content = bucket.announced()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            link = bucket.post("", row).json()
            assert WEB.put(link["url"], headers=link["headers"], content=content).status_code == 200
            end = {"key": row["key"], "number": link["number"]}
            answers = list(pool.map(lambda _, end=end: bucket.post("/finished", end), range(4)))
            assert {answer.status_code for answer in answers} == {204}, [answer.text for answer in answers]
            assert bucket.post("/finished", end).status_code == 204
            assert bucket.store.get(str(row["key"]), max_bytes=1 << 26) == content
    assert not list(bucket.store.list("uploads/"))


def test_nothing_is_finished_that_was_not_uploaded(bucket: Bucket) -> None:
    row, content = bucket.announced()
    end = {"key": row["key"], "number": bucket.post("", row).json()["number"]}
    assert bucket.post("/finished", end).status_code == 404
    # Not even where another writer has sent it.
    bucket.store.put(str(row["key"]), content)
    assert bucket.post("/finished", end).status_code == 404


def test_links_that_are_still_good_count_before_anything_is_uploaded(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.service.gateway.incoming.UPLOADS_BYTES", 0)
    row, content = bucket.announced()
    total = sum(entry.size for entry in read_manifest(bucket.local.store, bucket.digest)[1].objects)
    most = 2 * total // len(content)
    answers = [bucket.post("", row) for _ in range(most + 2)]
    assert [answer.status_code for answer in answers] == [*[200] * most, 507, 507]
    link = answers[0].json()
    assert WEB.put(link["url"], headers=link["headers"], content=content).status_code == 200
    assert bucket.post("", row).status_code == 507
    assert bucket.post("/finished", {"key": row["key"], "number": link["number"]}).status_code == 204
    assert bucket.post("", row).status_code == 200
    # What was never used counts no longer than it is good.
    monkeypatch.setattr("maskreg.service.gateway.incoming.LINK_SECONDS", -1)
    assert bucket.post("", row).status_code == 200


def test_links_are_given_to_readers_of_an_artifact_alone_and_lead_to_the_bucket(bucket: Bucket) -> None:
    client, endpoint = bucket.client, bucket.store.options.endpoint
    prefix = artifact_prefix(bucket.hidden)
    keys = {info.key for info in bucket.store.list(prefix)} - {prefix + MANIFEST}
    for token, status in ((ADMIN, 307), ("reader-token", 404), ("stranger-token", 404), ("", 401)):
        sent = {**headers(token), "X-Forwarded-Host": "evil.example"}
        answer = client.get(f"/api/v1/objects/{min(keys)}", headers=sent)
        assert (answer.status_code, "location" in answer.headers) == (status, status == 307)
        if status == 307:
            assert urlsplit(answer.headers["location"]).netloc == urlsplit(endpoint).netloc
        if token:
            links = _linked(client, prefix, token)
            assert set(links) == (keys if status == 307 else set())
            assert all(WEB.get(url).content == bucket.store.get(key, max_bytes=1 << 26) for key, url in links.items())
    for elsewhere in ("", "artifacts/", "artifacts/sha256/", "refs/", "names/", "uploads/"):
        assert _linked(client, elsewhere, ADMIN) == {}
    for key in ("uploads/x/1", "staging/x", "service.db", "sent/x"):
        wanted = {"key": key, "size": 1, "sha256": str(Digest.of(b"x"))}
        assert client.post("/api/v1/uploads", json=wanted, headers=headers(ADMIN)).status_code in (403, 404, 422)
        assert client.get(f"/api/v1/objects/{key}", headers=headers(ADMIN)).status_code == 404


def _linked(client: TestClient, prefix: str, token: str) -> dict[str, str]:
    answer = client.get("/api/v1/objects", params={"prefix": prefix, "links": "true"}, headers=headers(token))
    assert answer.status_code == 200
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return {row["key"]: row["link"] for row in rows if "link" in row}
