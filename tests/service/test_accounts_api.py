"""The API of accounts: what it answers, and what it never says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import API, create_app
from tests.service.serving import ADMIN, headers, service_in


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with service_in(tmp_path) as service:
        yield TestClient(create_app(service), f"http://localhost{API}/")


def ask(client: TestClient, method: str, path: str, token: str = ADMIN, status: int = 200, json: Any = None) -> Any:
    answer = client.request(method, path.removeprefix("/"), headers=headers(token), json=json)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def test_a_token_expires_in_a_month_by_default(client: TestClient) -> None:
    made = [
        ask(client, "POST", "/projects/team/tokens", status=201, json={"role": "reader", **extra})
        for extra in ({}, {"expires_s": None})
    ]
    assert [token["expires_at"] is None for token in made] == [False, True]
    answer = client.post("projects/team/tokens", headers=headers(ADMIN), json={"role": "reader"})
    assert answer.headers["cache-control"] == "no-store"
    for wrong in ({"expires_s": 0}, {"role": "owner"}, {"expires": 30}):
        ask(client, "POST", "/projects/team/tokens", status=422, json={"role": "reader", **wrong})


def test_projects_are_listed_for_those_who_may_read_them(client: TestClient) -> None:
    ask(client, "POST", "/projects", status=201, json={"name": "open", "public": True})
    for token, names in (("", ["open"]), ("reader-token", ["open", "team"]), (ADMIN, ["elsewhere", "open", "team"])):
        assert [project["name"] for project in ask(client, "GET", "/projects", token)["items"]] == names
    assert ask(client, "POST", "/projects", status=409, json={"name": "open"})["code"] == "OUTPUT_EXISTS"
    assert ask(client, "POST", "/projects", status=422, json={"name": "No Name"})["code"] == "NAME_INVALID"
    assert ask(client, "PATCH", "/projects/open/quota", json={"max_bytes": 1000})["max_bytes"] == 1000
    for path in ("", "/tokens", "/audit"):
        # Not for the admin of the server either.
        ask(client, "GET", f"/projects/nothing{path}", status=404)
