"""The API of accounts: what it answers, and what it never says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import API, create_app
from tests.service.serving import ADMIN, headers, service_in


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(create_app(service_in(tmp_path)), f"http://localhost{API}/")


def ask(client: TestClient, method: str, path: str, token: str = ADMIN, status: int = 200, json: Any = None) -> Any:
    answer = client.request(method, path.removeprefix("/"), headers=headers(token), json=json)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def test_a_sender_is_told_who_it_is(client: TestClient) -> None:
    identity = ask(client, "GET", "/whoami", "writer-token")
    assert (identity["name"], identity["projects"], len(identity["token"])) == ("ada", {"team": "writer"}, 16)
    assert ask(client, "GET", "/whoami")["projects"] == {"*": "admin"}
    assert ask(client, "GET", "/whoami", "", 401)["code"] == "UNAUTHENTICATED"


def test_a_token_is_shown_when_it_is_made_and_never_again(client: TestClient) -> None:
    made = ask(client, "POST", "/projects/team/tokens", status=201, json={"role": "reader", "name": "robot"})
    identity = ask(client, "GET", "/whoami", made["token"])
    assert (identity["name"], identity["token"], identity["projects"]) == ("robot", made["id"], {"team": "reader"})
    listed = client.get("projects/team/tokens", headers=headers(ADMIN)).text
    assert made["id"] in listed
    assert made["token"][20:] not in listed + client.get("audit", headers=headers(ADMIN)).text
    assert [token["id"] for token in ask(client, "GET", "/tokens", made["token"])["items"]] == [made["id"]]
    assert ask(client, "DELETE", f"/tokens/{made['id']}", made["token"])["revoked_at"]
    ask(client, "GET", "/whoami", made["token"], 401)


def test_no_cache_keeps_an_answer_with_a_token(client: TestClient) -> None:
    for path in ("projects/team/tokens", "tokens"):
        answer = client.post(path, headers=headers(ADMIN), json={"role": "reader"})
        assert answer.headers["cache-control"] == "no-store"


def test_a_token_expires_in_a_month_by_default(client: TestClient) -> None:
    made = [
        ask(client, "POST", "/projects/team/tokens", status=201, json={"role": "reader", **extra})
        for extra in ({}, {"expires_s": None})
    ]
    assert [token["expires_at"] is None for token in made] == [False, True]
    ask(client, "POST", "/projects/team/tokens", status=422, json={"role": "reader", "expires_s": 0})
    ask(client, "POST", "/projects/team/tokens", status=422, json={"role": "owner"})
    ask(client, "POST", "/projects/team/tokens", status=422, json={"role": "reader", "expires": 30})


def test_a_token_is_not_exchanged_for_one_that_may_more_or_lasts_longer(client: TestClient) -> None:
    for project in ("team", "*", "elsewhere"):
        for role in ("reader", "writer", "admin"):
            wish = {"role": role, "project": project, "expires_s": None}
            ask(client, "POST", "/tokens", "writer-token", 404 if project != "team" else 403, wish)
    ask(client, "POST", "/tokens", "stranger-token", 422, {"role": "reader", "project": "elsewhere", "name": "root"})
    made = ask(client, "POST", "/tokens", "stranger-token", 201, {"role": "reader", "project": "elsewhere"})
    assert ask(client, "GET", "/whoami", made["token"])["projects"] == {"elsewhere": "reader"}


def test_projects_are_listed_for_those_who_may_read_them(client: TestClient) -> None:
    ask(client, "POST", "/projects", status=201, json={"name": "open", "public": True})

    def names(token: str) -> list[str]:
        return [project["name"] for project in ask(client, "GET", "/projects", token)["items"]]

    assert names("") == ["open"]
    assert names("reader-token") == ["open", "team"]
    assert names(ADMIN) == ["elsewhere", "open", "team"]
    ask(client, "PATCH", "/projects/open", json={"public": False})
    assert names("") == []
    assert ask(client, "POST", "/projects", status=409, json={"name": "open"})["code"] == "OUTPUT_EXISTS"
    assert ask(client, "POST", "/projects", status=422, json={"name": "No Name"})["code"] == "NAME_INVALID"
    ask(client, "POST", "/projects", "stranger-token", 403, {"name": "mine"})


def test_a_project_admin_does_not_lift_its_quota(client: TestClient) -> None:
    limited = ask(client, "PUT", "/projects/elsewhere/quota", json={"max_bytes": 1000})
    assert (limited["max_bytes"], limited["max_artifacts"]) == (1000, None)
    ask(client, "PUT", "/projects/elsewhere/quota", "stranger-token", 403, {"max_bytes": None})
    assert ask(client, "GET", "/projects/elsewhere", "stranger-token")["max_bytes"] == 1000


@pytest.mark.parametrize("path", ["", "/members", "/tokens", "/audit"])
def test_what_does_not_exist_does_not_for_the_admin_of_the_server_either(client: TestClient, path: str) -> None:
    assert ask(client, "GET", f"/projects/nothing{path}", status=404)["title"] == "there is no project nothing"
