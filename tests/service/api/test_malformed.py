"""What a malformed request is told: sentences, and none of the words of a library."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.labs import Lab
from tests.service.serving import ADMIN

DIGEST = "a has to be a digest, sha256: and 64 hex digits"


@pytest.fixture
def client(shared: Lab) -> TestClient:
    return shared.client(ADMIN)


@pytest.mark.parametrize(
    ("path", "body", "title"),
    [
        pytest.param("/projects", {}, "name is missing", id="missing"),
        pytest.param("/projects", {"name": "a" * 300}, "name has more than 255 characters", id="long"),
        pytest.param("/projects", {"name": 5}, "name has to be a text", id="no-text"),
        pytest.param("/projects", {"name": "a", "public": 1}, "public has to be true or false", id="no-bool"),
        pytest.param("/projects", {"name": "a", "publik": True}, "publik is not known here", id="unknown"),
        pytest.param("/projects", ["a"], "the body has to be an object", id="no-object"),
        pytest.param("/patches", {"name": "a"}, "kind is missing from the body", id="no-kind"),
        pytest.param("/patches", {"kind": "x"}, "kind has to be one of apply, merge, extract", id="other-kind"),
    ],
)
def test_a_malformed_document_is_told_what_is_wrong(client: TestClient, path: str, body: Any, title: str) -> None:
    answer = client.post(f"/api/v1{path}", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["title"]) == (422, "USAGE", title)
    assert answer.json()["hint"] == "what can be asked, and how, is described in /openapi.json"


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/artifacts?limit=0", "limit has to be at least 1"),
        ("/artifacts?limit=1001", "limit has to be at most 1000"),
        ("/artifacts?limit=many", "limit has to be a whole number"),
        ("/artifacts?kind=x", "kind has to be one of mask, delta, baseline or analysis"),
        ("/compare?a=x&b=y", DIGEST),
        ("/events?since=soon", "since has to be a time, as in 2026-11-23T09:00:00Z"),
        ("/events?since=2026-11-23T09:00:00", "since needs a time zone, as in 2026-11-23T09:00:00Z"),
        ("/events?since=9999-12-31T23:59:59-23:59", "since: the years 1 to 9999 can be asked for"),
        ("/events?since=0001-01-01T00:00:00%2B23:59", "since: the years 1 to 9999 can be asked for"),
    ],
)
def test_a_malformed_query_is_told_what_is_wrong(client: TestClient, path: str, title: str) -> None:
    answer = client.get(f"/api/v1{path}")
    assert (answer.status_code, answer.json()["title"]) == (422, title)


def test_an_address_where_nothing_is_has_the_code_of_the_command_line(client: TestClient) -> None:
    for method, path, status, code, title in (
        ("GET", "/api/v1/nothing", 404, "NOT_FOUND", "there is nothing at this address"),
        ("POST", "/api/v1/artifacts", 405, "USAGE", "this address does not take POST"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["code"], answer.json()["title"]) == (status, code, title)
    page = client.get("/nothing", headers={"Accept": "text/html"})
    assert page.status_code == 404 and "There is nothing at this address." in page.text
