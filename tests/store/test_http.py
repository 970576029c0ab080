"""A store behind a service: what is sent again, what follows a redirect, and what is never sent elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import fields
from functools import partial

import pytest

from maskreg import errors
from maskreg.catalog.query import Query, SearchResult
from maskreg.digest import Digest
from maskreg.registry.searching import overlaps_on_server, search_server
from maskreg.settings import StoreOptions
from maskreg.settings.credentials import VARIABLE
from maskreg.store.connection import Connection
from maskreg.store.http import HttpStore
from maskreg.workspace.verbs import accounts
from maskreg.workspace.verbs.jobs import JobServer
from tests.store.hosting import Host, Reply, Scripted

TOKEN = "mr_secret"


Begin = Callable[[Scripted], tuple[Host, HttpStore]]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begins a host that answers as a script says, and gives it with the store behind it."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.setattr("maskreg.store.connection.PAUSE_S", 0.001)
    with ExitStack() as stack:

        def begin(script: Scripted) -> tuple[Host, HttpStore]:
            host = stack.enter_context(closing(Host(script)))
            return host, stack.enter_context(closing(HttpStore(host.url)))

        yield begin


def problem(status: int, code: str, title: str = "no", **headers: str) -> Reply:
    body = json.dumps({"title": title, "status": status, "code": code, "hint": "do this"}).encode()
    return status, {"Content-Type": "application/problem+json", **headers}, body


def test_a_redirect_to_another_host_gets_the_request_and_no_token(hosts: Begin) -> None:
    bucket, _ = hosts(lambda *_: (200, {}, b"bytes"))
    service, store = hosts(lambda *_: (307, {"Location": f"{bucket.url}/signed?X-Signature=1"}, b""))
    assert store.get("artifacts/a", max_bytes=10) == b"bytes"
    (_, path, headers) = bucket.asked[0]
    assert path == "/signed?X-Signature=1"
    assert "authorization" not in headers
    assert TOKEN not in str(bucket.asked)
    assert service.asked[0][2]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("act", ["put", "create", "delete", "list", "head", "clock"])
def test_only_reading_an_object_may_go_elsewhere(act: str, hosts: Begin) -> None:
    elsewhere, _ = hosts(lambda *_: (200, {}, b""))
    _, store = hosts(lambda *_: (307, {"Location": f"{elsewhere.url}/x"}, b""))
    with pytest.raises(errors.ConfigError, match=elsewhere.url):
        {
            "put": lambda: store.put("a", b"x"),
            "create": lambda: store.create("a", b"x"),
            "delete": lambda: store.delete(["a"]),
            "list": lambda: list(store.list("")),
            "head": lambda: store.head("a"),
            "clock": store.clock,
        }[act]()
    assert elsewhere.asked == []


def test_the_same_host_outside_of_the_service_is_elsewhere(hosts: Begin) -> None:
    def script(_: str, path: str, headers: dict[str, str]) -> Reply:
        return (200, {}, b"bytes") if path == "/other" else (307, {"Location": "/other"}, b"")

    host, _ = hosts(script)
    with closing(HttpStore(f"{host.url}/registry")) as store:
        assert store.get("a", max_bytes=10) == b"bytes"
    assert [("authorization" in headers, path) for _, path, headers in host.asked] == [
        (True, "/registry/api/v1/objects/a"),
        (False, "/other"),
    ]


def test_where_a_link_leads_nowhere_the_service_is_asked_for_the_bytes(hosts: Begin) -> None:
    def script(_: str, path: str, headers: dict[str, str]) -> Reply:
        if headers.get("x-maskreg-direct") == "never":
            return 200, {}, b"bytes"
        return 307, {"Location": "http://127.0.0.1:9/gone"}, b""

    _, store = hosts(script)
    assert store.get("a", max_bytes=10) == store.get("b", max_bytes=10) == b"bytes"


PREFIX = f"artifacts/sha256/{'a' * 64}/"


def test_a_link_that_a_listing_brought_is_used_once_and_without_the_token(hosts: Begin) -> None:
    bucket, _ = hosts(lambda *_: (200, {}, b"linked"))
    row = {"key": f"{PREFIX}c/0", "size": 6, "modified": "2026-01-01T00:00:00+00:00", "link": f"{bucket.url}/s?X=1"}
    listing = f'{json.dumps(row)}\n{{"end": true, "count": 1}}\n'.encode()
    service, store = hosts(lambda _, path, __: (200, {}, b"served" if PREFIX in path else listing))
    assert [info.key for info in store.list(PREFIX)] == [row["key"]]
    assert "links=true" in service.asked[0][1]
    assert [store.get(str(row["key"]), max_bytes=6) for _ in range(2)] == [b"linked", b"served"]
    assert list(store.list(PREFIX))
    with pytest.raises(errors.LimitError):
        store.get(str(row["key"]), max_bytes=5)
    assert [path for _, path, _ in bucket.asked] == ["/s?X=1"] * 2
    assert TOKEN not in str(bucket.asked)
    assert len(service.asked) == 3


@pytest.mark.parametrize("kind", ["expired", "gone", "partial", "plain", "own"])
def test_where_a_link_of_a_listing_is_of_no_use_the_service_is_asked(kind: str, hosts: Begin) -> None:
    bucket, _ = hosts(lambda *_: (206, {}, b"half") if kind == "partial" else (403, {}, b"<Error/>"))
    links = {"gone": "http://127.0.0.1:9/s", "plain": "http://bucket.example/s"}
    service: Host

    def script(_: str, path: str, headers: dict[str, str]) -> Reply:
        if "links=true" not in path:
            return (200, {}, b"bytes") if "authorization" in headers else (401, {}, b"")
        own = f"{service.url}/api/v1/objects/{PREFIX}c/0"
        link = own if kind == "own" else links.get(kind, f"{bucket.url}/s")
        row = {"key": f"{PREFIX}c/0", "size": 5, "modified": "2026-01-01T00:00:00+00:00", "link": link}
        return 200, {}, f'{json.dumps(row)}\n{{"end": true, "count": 1}}\n'.encode()

    service, store = hosts(script)
    assert len(list(store.list(PREFIX))) == 1
    assert store.get(f"{PREFIX}c/0", max_bytes=5) == b"bytes"
    assert TOKEN not in str(bucket.asked)


@pytest.mark.parametrize("status", [429, 502, 503, 504, None])
def test_what_passes_is_tried_again(status: int | None, hosts: Begin) -> None:
    answers = iter([status, status])

    def script(*_: object) -> Reply | None:
        code = next(answers, 200)
        return None if code is None else (code, {}, b"bytes" if code == 200 else b"")

    host, store = hosts(script)
    assert store.get("a", max_bytes=10) == b"bytes"
    assert len(host.asked) == 3


def test_a_service_that_says_how_long_to_wait_is_not_asked_before(
    hosts: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("maskreg.store.connection.time.sleep", pauses.append)
    _, store = hosts(lambda *_: problem(503, "UNAVAILABLE", "busy", **{"Retry-After": "7"}))
    with pytest.raises(errors.UnavailableError, match="busy"):
        store.get("a", max_bytes=1)
    assert min(pauses[1:]) >= 7
    far, store = hosts(lambda *_: problem(429, "UNAVAILABLE", "slow down", **{"Retry-After": "3600"}))
    with pytest.raises(errors.UnavailableError, check=lambda error: "slow down" in error.message):
        store.get("a", max_bytes=1)
    assert len(far.asked) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(401, "UNAUTHENTICATED"), errors.UnauthenticatedError),
        (problem(403, "DENIED"), errors.NotAllowedError),
        (problem(404, "NOT_FOUND"), errors.NotFoundError),
        (problem(413, "SIZE_INVALID"), errors.LimitError),
        (problem(503, "TRY_AGAIN"), errors.TryAgainError),
        (problem(507, "NO_SPACE"), errors.NoSpaceError),
        (problem(429, "RATE_LIMITED"), errors.TryAgainError),
        (problem(500, "SOMETHING_NEW"), errors.UnavailableError),
        ((404, {"Content-Type": "text/html"}, b"<html>"), errors.ConfigError),
    ],
)
def test_a_refusal_is_the_error_that_the_service_names(reply: Reply, kind: type[Exception], hosts: Begin) -> None:
    host, store = hosts(lambda *_: reply)
    with pytest.raises(kind, match=host.url):
        store.put("a", b"x")
    with pytest.raises(kind, match=host.url):
        list(store.list(""))


def test_an_answer_that_breaks_off_is_asked_for_again(hosts: Begin) -> None:
    lengths = iter(["9", "9"])
    _, store = hosts(lambda *_: (200, {"Content-Length": next(lengths, "5"), "Connection": "close"}, b"bytes"))
    assert store.get("a", max_bytes=10) == b"bytes"
    rows = b'{"key": "a", "size": 1, "modified": "2026-01-01T00:00:00+00:00"}\n'
    ends = iter([b"", b'{"end": true, "count": 1}\n'])
    _, store = hosts(lambda *_: (200, {}, rows + next(ends)))
    assert [info.key for info in store.list("")] == ["a"]


STRANGE = "this is no answer of a registry service"
DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "body",
    [DEEP, b'{"a":' * 100_000, b"[]", b"{}", b'{"now": 5, "name": 5}', b'{"now": "soon", "now": "later"}', b"\xff"],
)
def test_an_answer_of_another_form_is_an_error_that_names_the_service(body: bytes, hosts: Begin) -> None:
    host, store = hosts(lambda *_: (200, {}, body))
    digest = Digest.of(b"x")
    for ask in (
        store.clock,
        lambda: store.principal,
        lambda: store.put("artifacts/a", b"x" * (256 << 10)),
        lambda: search_server(store, Query()),
        lambda: overlaps_on_server(store, digest),
        lambda: JobServer("lab", Connection(host.url)).job("GET", "/patches/1"),
        lambda: accounts.whoami(host.url),
        lambda: accounts.tokens(server=host.url),
    ):
        with pytest.raises(errors.ConfigError, match=f"{host.url}: {STRANGE}") as caught:
            ask()
        assert caught.value.hint


def _answering(body: bytes, *_: object) -> Reply:
    return 200, {}, body


def test_a_result_under_a_name_that_is_none_is_refused(hosts: Begin) -> None:
    row = {field.name: "x" for field in fields(SearchResult)} | {
        "exact": True,
        "density": 0.5,
        **dict.fromkeys(("ffn_density", "ffn_share", "ffn_lift", "rlvr_overlap", "rlvr_against")),
        "nnz": 1,
        "numel": 2,
        "params": 2,
        "size": 3,
        "digest": str(Digest.of(b"x")),
        "at": "2026-01-01T00:00:00+00:00",
        "project": "team",
        "name": "opd",
    }
    for changed in ({}, {"name": "../../opd"}, {"project": 7}, {"density": "x"}, {"digest": "x"}):
        answer = {"items": [row | changed], "left_out": [], "next": None}
        _, store = hosts(partial(_answering, json.dumps(answer).encode()))
        if not changed:
            assert search_server(store, Query()).results[0].name == "opd"
            continue
        with pytest.raises(errors.ConfigError, match=STRANGE):
            search_server(store, Query())


@pytest.mark.parametrize("location", ["http://127.0.0.1:999999/x", "http://[bad", "//:99999999/"])
def test_a_redirect_to_no_address_is_no_fault_of_this_program(location: str, hosts: Begin) -> None:
    _, store = hosts(lambda *_: (307, {"Location": location}, b""))
    for ask in (lambda: store.get("artifacts/a", max_bytes=10), store.clock):
        with pytest.raises(errors.ConfigError, match=STRANGE):
            ask()
    body = json.dumps({"number": "1", "url": location, "headers": {}}).encode()
    _, store = hosts(lambda *_: (200, {}, body))
    with pytest.raises(errors.ConfigError, match=STRANGE):
        store.put("artifacts/a", b"x" * (256 << 10))


def test_a_refusal_is_shown_on_one_line_and_not_without_end(hosts: Begin) -> None:
    _, store = hosts(lambda *_: problem(403, "DENIED", "no\n  next: rm -rf /\r" + "A" * 5_000_000))
    with pytest.raises(errors.NotAllowedError) as caught:
        store.head("a")
        store.clock()
    assert "\n" not in caught.value.message and len(caught.value.message) < 1_100
    body = json.dumps({"title": {"a": 1}, "code": ["x"], "hint": 7}).encode()
    _, store = hosts(lambda *_: (403, {"Content-Type": "application/problem+json"}, body))
    with pytest.raises(errors.NotAllowedError, match="403"):
        store.clock()
    _, store = hosts(lambda *_: (403, {"Content-Type": "application/problem+json"}, DEEP))
    with pytest.raises(errors.ConfigError, match=STRANGE):
        store.clock()


def test_a_service_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.connection.PAUSE_S", 0.001)
    with closing(HttpStore("http://127.0.0.1:9")) as store, pytest.raises(errors.UnavailableError, match=":9: head: "):
        store.head("a")
    with pytest.raises(errors.ConfigError, match=r"/nowhere/ca.pem"):
        HttpStore("https://host", StoreOptions(ca_bundle="/nowhere/ca.pem"))
