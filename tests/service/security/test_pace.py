"""Clients that are slow, that break off, and that speak something else: each holds its connection for a time alone."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest

from maskreg.service.app import create_app
from tests.service.serving import ADMIN, headers, listening, service_in

PUT = f"PUT /api/v1/objects/probe/{'0' * 32}/written HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
DIGEST = "Repr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\r\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        pytest.MonkeyPatch.context() as patch,
        service_in(tmp_path_factory.mktemp("home")) as service,
        listening(create_app(service)) as url,
    ):
        patch.setattr("maskreg.service.middleware.PATIENCE_S", 0.3)
        yield url


def said(url: str, *pieces: str) -> tuple[bytes, bytes]:
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port or 0), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece.encode())
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    before, _, body = answer.partition(b"\r\n\r\n")
    return before, body


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param((), id="nothing"),
        pytest.param(("GET / HT",), id="half a line"),
        pytest.param(("GET / HTTP/1.1\r\nHost: localhost\r\n", "X-Slow: y\r\n"), id="half of the headers"),
        pytest.param(
            ("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /livez HTTP/1.1\r\n"), id="half of a second request"
        ),
    ],
)
def test_a_connection_whose_headers_do_not_end_is_closed(url: str, sent: tuple[str, ...]) -> None:
    answer, _ = said(url, *sent)
    assert answer.startswith(b"HTTP/1.1 200" if len(sent) == 2 and "livez" in sent[0] else b"")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(f"{PUT}{DIGEST}Content-Length: 9\r\n\r\nhalf", id="an object"),
        pytest.param(
            f"POST /api/v1/uploads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n"
            'Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"key": ',
            id="a document",
        ),
        pytest.param(
            "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            "Content-Length: 90\r\n\r\ntoken=",
            id="a form",
        ),
        pytest.param(f"{PUT}{DIGEST}Content-Length: 9\r\n\r\n", id="no body"),
    ],
)
def test_a_body_that_stops_coming_is_answered_and_the_connection_closed(url: str, request_: str) -> None:
    answer, _ = said(url, request_)
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_client_that_breaks_off_leaves_no_traceback(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port or 0)) as connection:
                connection.sendall(f"{PUT}{DIGEST}Content-Length: 9\r\n\r\nhalf".encode())
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(100):
            ended = [record for record in list(caplog.records) if record.getMessage().startswith("PUT ")]
            if len(ended) == 3:
                break
            httpx2.get(f"{url}/livez")
    assert len(ended) == 3
    assert httpx2.get(f"{url}/api/v1/objects/probe/{'0' * 32}/written", headers=headers(ADMIN)).status_code == 404
    assert not [record for record in caplog.records if record.exc_info]


def test_head_is_answered_where_get_is(url: str) -> None:
    for path in ("/livez", "/sign-in", "/api/v1/patches", "/nowhere"):
        head, get = httpx2.head(f"{url}{path}"), httpx2.get(f"{url}{path}")
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]


def test_a_refused_method_is_answered_with_all_that_the_address_takes(url: str) -> None:
    key = f"/api/v1/objects/probe/{'0' * 32}/written"
    for path, method, allowed in (
        (key, "PATCH", {"GET", "HEAD", "PUT", "DELETE"}),
        ("/api/v1/patches", "DELETE", {"GET", "HEAD", "POST"}),
        ("/api/v1/projects/team/refs/toy/v1", "POST", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
    ):
        answer = httpx2.request(method, f"{url}{path}")
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == allowed
