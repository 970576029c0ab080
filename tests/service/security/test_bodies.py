"""Bodies that are larger than they say, mean two things, or are not what they are sent as."""

from __future__ import annotations

import gzip
import json
import select
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from fastapi import params
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.service.app import create_app, routers
from maskreg.service.middleware import MAX_BYTES
from tests.service.security.conftest import Site, routes
from tests.service.serving import ADMIN, listening, stated

OBJECTS = "/api/v1/objects"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(site: Site) -> TestClient:
    return site.client(ADMIN)


def test_no_route_reads_a_body_without_end(site: Site) -> None:
    client = site.client()
    large = b'"' + b"x" * MAX_BYTES + b'"'
    for method, path in routes():
        if method in ("POST", "PATCH", "PUT") and "/objects/" not in path:
            answer = client.request(method, path, content=large, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (413, "SIZE_INVALID"), f"{method} {path}"


def test_a_body_without_a_length_is_counted_as_it_comes(site: Site) -> None:
    head = f"POST /api/v1/projects HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
    piece = b"%x\r\n%s\r\n" % (MAX_BYTES // 4, b"x" * (MAX_BYTES // 4))
    with listening(create_app(site.service)) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 0), timeout=60) as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            # The answer comes, or the connection is closed, before the body has ended.
            pieces = iter([piece] * 64)
            with suppress(ConnectionError):
                while not select.select([connection], [], [], 0)[0]:
                    connection.sendall(next(pieces))
    assert list(pieces)


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "+5", "5 ", "0x5", "5, 6", str(1 << 62), "1e3"])
def test_a_length_that_lies_is_refused(length: str, client: TestClient) -> None:
    key = artifact_prefix(Digest.of(b"x")) + MANIFEST
    for method, path in (("PUT", f"{OBJECTS}/{key}"), ("POST", "/api/v1/projects")):
        answer = client.request(method, path, content=b"hello", headers={**stated(b"hello"), "Content-Length": length})
        assert 400 <= answer.status_code < 500, answer.text


def test_a_compressed_upload_is_not_unpacked(client: TestClient, site: Site) -> None:
    bomb = gzip.compress(b"0" * (8 << 20))
    for claimed in (stated(b"0" * (8 << 20)), stated(bomb)):
        key = f"announced/sha256/{Digest.of(bomb).hex}/{MANIFEST}"
        answer = client.put(f"{OBJECTS}/{key}", content=bomb, headers={**claimed, "Content-Encoding": "gzip"})
        assert answer.status_code == 422
        assert site.service.registry.store.head(key) is None
    packed = gzip.compress(json.dumps({"name": "packed"}).encode())
    sent = {"Content-Encoding": "gzip", **JSON}
    assert 400 <= client.post("/api/v1/projects", content=packed, headers=sent).status_code < 500


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name":' * 50_000, '{"name": 1e999999}', '{"name": NaN}', "\xff"])
def test_a_document_that_is_none_is_refused(text: str, client: TestClient) -> None:
    answer = client.post("/api/v1/projects", content=text.encode("latin-1"), headers=JSON)
    expected = (413, "SIZE_INVALID") if len(text) > 1000 else (422, "FORMAT_INVALID")
    assert (answer.status_code, answer.json()["code"]) == expected


def test_a_document_means_one_thing(client: TestClient) -> None:
    count = 0
    for prefix, router in routers():
        for route in router.routes:
            assert isinstance(route, APIRoute)
            if route.body_field is None or isinstance(route.body_field.field_info, params.Form):
                continue
            body = b'{"name": "once", "name": "twice"}'
            answer = client.request(min(route.methods or ()), prefix + route.path, content=body, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (422, "FORMAT_INVALID"), route.path
            assert "'name'" in answer.json()["title"]
            count += 1
    assert count > 6


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_document_of_another_media_type_is_refused(media: str, client: TestClient) -> None:
    body = json.dumps({"name": "confused"}).encode()
    answer = client.post("/api/v1/projects", content=body, headers={"Content-Type": media} if media else {})
    assert answer.status_code == 422
    assert client.get("/api/v1/projects/confused").status_code == 404
