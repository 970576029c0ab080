"""Signed links into a bucket: each is good for one thing, for a short time, and only for permitted clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import botocore.auth
import httpx2
import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.store.base import LINK_SECONDS
from maskreg.store.s3 import S3Store
from tests.buckets import log_in, new_store
from tests.servers import S3Server
from tests.service.labs import fill
from tests.service.serving import ADMIN, headers, service_on


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    log_in(s3_server, monkeypatch)
    with new_store(s3_server) as store:
        yield store


@pytest.fixture
def service(store: S3Store, tmp_path: Path) -> Iterator[Service]:
    """A server over a bucket that has ``team/opd:v1`` and ``secret/hidden``."""
    with service_on(store, tmp_path / "served") as service:
        fill(service.workspace, tmp_path)
        for name in ("team/opd:v1", "secret/hidden"):
            maskreg.push(name, remote=service.remote, workspace=service.workspace)
        yield service


def test_a_link_is_good_for_one_thing_with_one_object(store: S3Store) -> None:
    store.put("mine", b"mine")
    store.put("theirs", b"theirs")
    link = store.read_link("mine")
    assert httpx2.get(link).content == b"mine"
    assert httpx2.get(link.replace("/mine?", "/theirs?")).status_code == 403
    assert httpx2.get(link.replace("Expires=900", "Expires=90000")).status_code == 403
    for method in ("PUT", "DELETE", "POST"):
        assert httpx2.request(method, link, content=b"").status_code in (400, 403, 405)
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
        assert httpx2.put(url, headers=sent, content=content).status_code in (400, 403)
    assert httpx2.get(link.url).status_code == 403
    assert list(store.list("")) == []
    assert httpx2.put(link.url, headers=link.headers, content=data).status_code == 200


def test_a_link_that_has_expired_is_refused(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("mine", b"mine")
    earlier = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=LINK_SECONDS + 60)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: earlier)
    link = store.read_link("mine")
    upload = store.upload_link("late", 1, Digest.of(b"x"))
    monkeypatch.undo()
    assert earlier.strftime("%Y%m%dT%H%M%SZ") in link
    assert httpx2.get(link).status_code == 403
    assert httpx2.put(upload.url, headers=upload.headers, content=b"x").status_code == 403


def test_no_link_is_given_to_who_may_not_read_and_none_into_what_is_private(service: Service) -> None:
    client = TestClient(create_app(service), follow_redirects=False)
    store = service.registry.store
    digests = {
        name: maskreg.show(name, remote=service.remote, workspace=service.workspace).digest
        for name in ("team/opd:v1", "secret/hidden")
    }
    for name, statuses in (("team/opd:v1", {"reader-token": 307}), ("secret/hidden", {"reader-token": 404})):
        key = next(info.key for info in store.list(artifact_prefix(digests[name])) if "/c/" in info.key)
        for token, status in {**statuses, "": 401, "stranger-token": 404}.items():
            answer = client.get(f"/api/v1/objects/{key}", headers=headers(token))
            assert answer.status_code == status
            assert ("location" in answer.headers) == (status == 307)
            assert "Signature" not in answer.text
    for key in ("uploads/x/1", "staging/x", "service.db", "sent/x"):
        for token in ("writer-token", ADMIN):
            sent = {"key": key, "size": 1, "sha256": str(Digest.of(b"x"))}
            answer = client.post("/api/v1/uploads", json=sent, headers=headers(token))
            assert answer.status_code in (403, 404, 422)
            assert client.get(f"/api/v1/objects/{key}", headers=headers(token)).status_code == 404


def test_a_listing_brings_links_to_the_objects_of_an_artifact_for_who_may_read_it(service: Service) -> None:
    client = TestClient(create_app(service))
    store = service.registry.store
    prefixes = {
        name: artifact_prefix(maskreg.show(name, remote=service.remote, workspace=service.workspace).digest)
        for name in ("team/opd:v1", "secret/hidden")
    }

    def linked(prefix: str, token: str) -> dict[str, str]:
        answer = client.get("/api/v1/objects", params={"prefix": prefix, "links": "true"}, headers=headers(token))
        assert answer.status_code == 200
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return {row["key"]: row["link"] for row in rows if "link" in row}

    for name, token, may_read in (
        *(("team/opd:v1", "reader-token", True), ("team/opd:v1", "stranger-token", False)),
        *(("secret/hidden", "reader-token", False), ("secret/hidden", "writer-token", False)),
        ("secret/hidden", ADMIN, True),
    ):
        links = linked(prefixes[name], token)
        keys = {info.key for info in store.list(prefixes[name])} - {f"{prefixes[name]}manifest.json"}
        assert set(links) == (keys if may_read else set()), (name, token)
        for key, link in links.items():
            assert httpx2.get(link).content == store.get(key, max_bytes=1 << 26)
    for prefix in ("", "artifacts/", "artifacts/sha256/", "refs/", "names/", "uploads/"):
        assert linked(prefix, ADMIN) == {}
    plain = client.get("/api/v1/objects", params={"prefix": prefixes["team/opd:v1"]}, headers=headers(ADMIN))
    assert "Signature" not in plain.text and "manifest.json" in plain.text


def test_a_listing_brings_only_so_many_links(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.service.gateway.objects._LINKS", 2)
    client = TestClient(create_app(service))
    prefix = artifact_prefix(maskreg.show("team/opd:v1", remote=service.remote, workspace=service.workspace).digest)
    answer = client.get("/api/v1/objects", params={"prefix": prefix, "links": "true"}, headers=headers(ADMIN))
    assert answer.text.count('"link"') == 2 < answer.text.count('"key"')


def test_a_link_leads_to_the_bucket_of_the_server_alone(service: Service, s3_server: S3Server) -> None:
    client = TestClient(create_app(service), follow_redirects=False)
    prefix = artifact_prefix(maskreg.show("team/opd:v1", remote=service.remote, workspace=service.workspace).digest)
    forged = {**headers("reader-token"), "X-Forwarded-Host": "evil.example", "Origin": "http://evil.example"}
    answers = [
        client.get(f"/api/v1/objects/{info.key}", headers=forged) for info in service.registry.store.list(prefix)
    ]
    hosts = {urlsplit(answer.headers["location"]).netloc for answer in answers if answer.status_code == 307}
    assert hosts == {urlsplit(s3_server.endpoint).netloc}
