"""The page of one's own roles and tokens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from tests.service.pages.test_signing_in import OWN, signed_in
from tests.service.serving import headers, service_in


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A client of a server with nothing but accounts."""
    return TestClient(create_app(service_in(tmp_path)), "http://localhost", headers={"Accept": "text/html"})


def test_a_token_is_shown_once_and_works_until_it_is_revoked(client: TestClient) -> None:
    signed_in(client)
    form = {"role": "writer", "days": "7", "project": "team"}
    text = client.post("/settings/tokens", data=form, headers=OWN).text
    secret = re.search(r"mr_[0-9a-f]+_[A-Za-z0-9_-]+", text)
    assert secret is not None
    assert secret[0] not in client.get("/settings").text
    program = TestClient(client.app, "http://localhost")
    assert program.get("/api/v1/whoami", headers=headers(secret[0])).json()["projects"] == {"team": "writer"}
    id = secret[0].split("_")[1]
    assert client.post(f"/settings/tokens/{id}/revoke", headers=OWN).status_code == 200
    assert program.get("/api/v1/whoami", headers=headers(secret[0])).status_code == 401


def test_the_page_is_for_the_owner_and_gives_no_more_than_the_role(client: TestClient) -> None:
    assert client.get("/settings", follow_redirects=False).headers["location"] == "/sign-in?next=%2Fsettings"
    client.post("/sign-in", data={"token": "writer-token"}, headers=OWN)
    form = {"role": "admin", "days": "30", "project": "team"}
    assert client.post("/settings/tokens", data=form, headers=OWN).status_code == 403
    assert client.post("/settings/tokens", data={**form, "role": "reader"}).status_code == 403


def test_an_admin_changes_who_reads_and_writes_a_project(client: TestClient) -> None:
    visitor = TestClient(client.app, "http://localhost", headers={"Accept": "text/html"}, follow_redirects=False)
    assert client.get("/settings/p/team", headers=headers("writer-token")).status_code == 403
    assert client.get("/settings/p/team", headers=headers("stranger-token")).status_code == 404
    signed_in(client)
    assert "Settings of team" in client.get("/settings").text
    members = "/settings/p/team/members"
    assert ">dave<" in client.post(members, data={"name": "dave", "role": "reader"}, headers=OWN).text
    assert ">dave<" not in client.post(members, data={"name": "dave"}, headers=OWN).text
    assert visitor.get("/p/team").status_code == 303
    assert "checked" in client.post("/settings/p/team/visibility", data={"public": "true"}, headers=OWN).text
    assert visitor.get("/p/team").status_code == 200
    assert client.post("/settings/p/team/visibility").status_code == 403


@pytest.mark.parametrize("change", [{"role": "owner"}, {"days": "0"}, {"days": "many"}])
def test_what_makes_no_sense_is_refused(client: TestClient, change: dict[str, str]) -> None:
    signed_in(client)
    answer = client.post("/settings/tokens", data={"role": "reader", "days": "7", "project": "*"} | change, headers=OWN)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")
