"""What a malformed request is told: sentences, and none of the words of a library."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.labs import Lab
from tests.service.serving import ADMIN


@pytest.fixture
def client(shared: Lab) -> TestClient:
    return shared.client(ADMIN)


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/projects", {}, "name"),
        ("/projects", {"name": "a" * 300}, "name"),
        ("/projects", {"name": 5}, "name"),
        ("/projects", {"name": "a", "public": 1}, "public"),
        ("/projects", {"name": "a", "publik": True}, "publik"),
        ("/projects", ["a"], "body"),
        ("/patches", {"name": "a"}, "kind"),
    ],
)
def test_a_malformed_document_is_told_what_is_wrong(client: TestClient, path: str, body: Any, names: str) -> None:
    answer = client.post(f"/api/v1{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "USAGE")
    assert names in answer.json()["title"]


def test_an_address_where_nothing_is_has_the_code_of_the_command_line(client: TestClient) -> None:
    for method, path, status, code, title in (
        ("GET", "/api/v1/nothing", 404, "NOT_FOUND", "there is nothing at this address"),
        ("POST", "/api/v1/artifacts", 405, "USAGE", "this address does not take POST"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["code"], answer.json()["title"]) == (status, code, title)
    page = client.get("/nothing", headers={"Accept": "text/html"})
    assert page.status_code == 404 and "There is nothing at this address." in page.text
