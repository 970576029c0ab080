"""A store behind a service: what is sent again, what follows a redirect, and what is never sent elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from maskreg.errors import (
    ConfigError,
    LimitError,
    NoSpaceError,
    NotAllowedError,
    NotFoundError,
    TryAgainError,
    UnauthenticatedError,
    UnavailableError,
)
from maskreg.settings import StoreOptions
from maskreg.settings.credentials import VARIABLE
from maskreg.store.http import HttpStore

Reply = tuple[int, dict[str, str], bytes]
Scripted = Callable[[str, str, dict[str, str]], Reply | None]

TOKEN = "mr_secret"


class Host:
    """An HTTP server that answers as a script says, and keeps what it was asked."""

    def __init__(self, script: Scripted) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.command, self.path, headers))
                reply = script(self.command, self.path, headers)
                if reply is None:
                    self.close_connection = True
                    return
                status, sent, body = reply
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **sent}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Scripted], Host]]:
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.setattr("maskreg.store.connection._PAUSE_SECONDS", 0.001)
    begun: list[Host] = []

    def begin(script: Scripted) -> Host:
        begun.append(Host(script))
        return begun[-1]

    yield begin
    for host in begun:
        host.close()


def problem(status: int, code: str, title: str = "no", **headers: str) -> Reply:
    body = json.dumps({"title": title, "status": status, "code": code, "hint": "do this"}).encode()
    return status, {"Content-Type": "application/problem+json", **headers}, body


def test_a_redirect_to_another_host_gets_the_request_and_no_token(hosts: Callable[[Scripted], Host]) -> None:
    bucket = hosts(lambda *_: (200, {}, b"bytes"))
    service = hosts(lambda *_: (307, {"Location": f"{bucket.url}/signed?X-Signature=1"}, b""))
    with closing(HttpStore(service.url)) as store:
        assert store.get("artifacts/a", max_bytes=10) == b"bytes"
    (_, path, headers) = bucket.asked[0]
    assert path == "/signed?X-Signature=1"
    assert "authorization" not in headers
    assert TOKEN not in str(bucket.asked)
    assert service.asked[0][2]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("act", ["put", "create", "delete", "list", "head", "clock"])
def test_only_reading_an_object_may_go_elsewhere(act: str, hosts: Callable[[Scripted], Host]) -> None:
    elsewhere = hosts(lambda *_: (200, {}, b""))
    service = hosts(lambda *_: (307, {"Location": f"{elsewhere.url}/x"}, b""))
    with closing(HttpStore(service.url)) as store, pytest.raises(ConfigError, match="neither the token nor data"):
        {
            "put": lambda: store.put("a", b"x"),
            "create": lambda: store.create("a", b"x"),
            "delete": lambda: store.delete(["a"]),
            "list": lambda: list(store.list("")),
            "head": lambda: store.head("a"),
            "clock": store.clock,
        }[act]()
    assert elsewhere.asked == []


def test_the_same_host_outside_of_the_service_is_elsewhere(hosts: Callable[[Scripted], Host]) -> None:
    def script(_: str, path: str, headers: dict[str, str]) -> Reply:
        return (200, {}, b"bytes") if path == "/other" else (307, {"Location": "/other"}, b"")

    host = hosts(script)
    with closing(HttpStore(f"{host.url}/registry")) as store:
        assert store.get("a", max_bytes=10) == b"bytes"
    assert [("authorization" in headers, path) for _, path, headers in host.asked] == [
        (True, "/registry/api/v1/objects/a"),
        (False, "/other"),
    ]


def test_where_a_link_leads_nowhere_the_service_is_asked_for_the_bytes(hosts: Callable[[Scripted], Host]) -> None:
    def script(_: str, path: str, headers: dict[str, str]) -> Reply:
        if headers.get("x-maskreg-direct") == "never":
            return 200, {}, b"bytes"
        return 307, {"Location": "http://127.0.0.1:9/gone"}, b""

    service = hosts(script)
    with closing(HttpStore(service.url)) as store:
        assert store.get("a", max_bytes=10) == store.get("b", max_bytes=10) == b"bytes"


@pytest.mark.parametrize("status", [429, 502, 503, 504, None])
def test_what_passes_is_tried_again(status: int | None, hosts: Callable[[Scripted], Host]) -> None:
    answers = iter([status, status])

    def script(*_: object) -> Reply | None:
        code = next(answers, 200)
        return None if code is None else (code, {}, b"bytes" if code == 200 else b"")

    host = hosts(script)
    with closing(HttpStore(host.url)) as store:
        assert store.get("a", max_bytes=10) == b"bytes"
    assert len(host.asked) == 3


def test_a_service_that_says_how_long_to_wait_is_not_asked_before(
    hosts: Callable[[Scripted], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("maskreg.store.connection.time.sleep", pauses.append)
    host = hosts(lambda *_: problem(503, "UNAVAILABLE", "busy", **{"Retry-After": "7"}))
    with closing(HttpStore(host.url)) as store, pytest.raises(UnavailableError, match="busy"):
        store.get("a", max_bytes=1)
    assert min(pauses[1:]) >= 7
    far = hosts(lambda *_: problem(429, "UNAVAILABLE", "slow down", **{"Retry-After": "3600"}))
    with closing(HttpStore(far.url)) as store, pytest.raises(UnavailableError, match="slow down"):
        store.get("a", max_bytes=1)
    assert len(far.asked) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(401, "UNAUTHENTICATED"), UnauthenticatedError),
        (problem(403, "DENIED"), NotAllowedError),
        (problem(404, "NOT_FOUND"), NotFoundError),
        (problem(413, "SIZE_INVALID"), LimitError),
        (problem(503, "TRY_AGAIN"), TryAgainError),
        (problem(507, "NO_SPACE"), NoSpaceError),
        (problem(500, "SOMETHING_NEW"), UnavailableError),
        ((404, {"Content-Type": "text/html"}, b"<html>"), ConfigError),
    ],
)
def test_a_refusal_is_the_error_that_the_service_names(
    reply: Reply, kind: type[Exception], hosts: Callable[[Scripted], Host]
) -> None:
    host = hosts(lambda *_: reply)
    with closing(HttpStore(host.url)) as store, pytest.raises(kind, match=host.url):
        store.put("a", b"x")
    with closing(HttpStore(host.url)) as store, pytest.raises(kind, match=host.url):
        list(store.list(""))


def test_a_refused_head_has_no_text_and_its_kind_all_the_same(hosts: Callable[[Scripted], Host]) -> None:
    host = hosts(lambda *_: problem(401, "UNAUTHENTICATED"))
    with closing(HttpStore(host.url)) as store, pytest.raises(UnauthenticatedError):
        store.head("a")


def test_an_answer_that_breaks_off_is_asked_for_again(hosts: Callable[[Scripted], Host]) -> None:
    lengths = iter(["9", "9"])
    host = hosts(lambda *_: (200, {"Content-Length": next(lengths, "5"), "Connection": "close"}, b"bytes"))
    with closing(HttpStore(host.url)) as store:
        assert store.get("a", max_bytes=10) == b"bytes"
    rows = b'{"key": "a", "size": 1, "modified": "2026-01-01T00:00:00+00:00"}\n'
    ends = iter([b"", b'{"end": true, "count": 1}\n'])
    listing = hosts(lambda *_: (200, {}, rows + next(ends)))
    with closing(HttpStore(listing.url)) as store:
        assert [info.key for info in store.list("")] == ["a"]


def test_a_page_that_is_no_service_is_named(hosts: Callable[[Scripted], Host]) -> None:
    host = hosts(lambda *_: (200, {"Content-Type": "text/html"}, b"<html>"))
    with closing(HttpStore(host.url)) as store:
        for ask in (lambda: list(store.list("")), store.clock, lambda: store.head("a")):
            with pytest.raises(ConfigError, match=host.url):
                ask()


def test_a_service_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.connection._PAUSE_SECONDS", 0.001)
    with closing(HttpStore("http://127.0.0.1:9")) as store, pytest.raises(UnavailableError, match="does not answer"):
        store.head("a")
    with pytest.raises(ConfigError, match="does not exist"):
        HttpStore("https://host", StoreOptions(ca_bundle="/nowhere/ca.pem"))
