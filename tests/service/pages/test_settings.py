"""Settings: what people change on pages, who may, and what is shown once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from tests.browser import Opened
from tests.service.pages.test_signing_in import OWN, signed_in
from tests.service.serving import ADMIN, headers, listening, service_in


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A client of a server with nothing but accounts."""
    return TestClient(create_app(service_in(tmp_path)), "http://localhost", headers={"Accept": "text/html"})


def sent(client: TestClient, path: str, csrf: str, **fields: str) -> str:
    answer = client.post(path, data={"csrf": csrf, **fields}, headers=OWN)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_token_is_shown_once_and_works_until_it_is_revoked(client: TestClient) -> None:
    csrf = signed_in(client)
    text = sent(client, "/settings/p/team/tokens", csrf, name="carol", role="writer", days="7")
    secret = re.search(r"mr_[0-9a-f]+_[A-Za-z0-9_-]+", text)
    assert secret is not None
    project = client.get("/settings/p/team").text
    assert secret[0] not in project
    assert "carol" in project
    program = TestClient(client.app, "http://localhost")
    assert program.get("/api/v1/whoami", headers=headers(secret[0])).json()["name"] == "carol"
    id = secret[0].split("_")[1]
    sent(client, f"/settings/p/team/tokens/{id}/revoke", csrf)
    assert program.get("/api/v1/whoami", headers=headers(secret[0])).status_code == 401


def test_members_come_and_go(client: TestClient) -> None:
    csrf = signed_in(client)
    assert ">dave<" in sent(client, "/settings/p/team/members", csrf, name="dave", role="reader")
    text = sent(client, "/settings/p/team/members/remove", csrf, name="dave")
    assert '<th scope="row">dave</th>' not in text
    assert "revoke" in text


def test_a_project_is_made_and_opened_to_everybody(client: TestClient) -> None:
    csrf = signed_in(client)
    sent(client, "/settings/projects", csrf, name="open")
    visitor = TestClient(client.app, "http://localhost", headers={"Accept": "text/html"})
    assert visitor.get("/p/open", follow_redirects=False).status_code == 303
    assert "checked" in sent(client, "/settings/p/open/visibility", csrf, public="true")
    assert visitor.get("/p/open").status_code == 200
    sent(client, "/settings/p/open/visibility", csrf)
    assert visitor.get("/p/open", follow_redirects=False).status_code == 303


def test_whoever_may_not_manage_a_project_does_not(client: TestClient) -> None:
    assert client.get("/settings/p/team", headers=headers("writer-token")).status_code == 403
    assert client.get("/settings/p/team", headers=headers("stranger-token")).status_code == 404
    assert client.get("/settings", follow_redirects=False).headers["location"] == "/sign-in?next=%2Fsettings"
    client.post("/sign-in", data={"token": "writer-token"}, headers=OWN)
    text = client.get("/settings").text
    assert "Settings of team" not in text
    assert "New project" not in text
    csrf = re.findall(r'name="csrf" value="([^"]+)"', text)[0]
    for path, fields in (
        ("/settings/p/team/members", {"name": "ada", "role": "admin"}),
        ("/settings/projects", {"name": "mine"}),
        ("/settings/tokens", {"role": "admin", "days": "30", "project": "team"}),
    ):
        assert client.post(path, data={"csrf": csrf, **fields}, headers=OWN).status_code == 403


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/settings/p/team/tokens", {"name": "x", "role": "owner", "days": "7"}),
        ("/settings/p/team/tokens", {"name": "x", "role": "reader", "days": "0"}),
        ("/settings/p/team/tokens", {"name": "x", "role": "reader", "days": "many"}),
        ("/settings/projects", {"name": "Not A Name"}),
        ("/settings/projects", {}),
    ],
)
def test_what_makes_no_sense_is_refused(client: TestClient, path: str, fields: dict[str, str]) -> None:
    csrf = signed_in(client)
    answer = client.post(path, data={"csrf": csrf, **fields}, headers=OWN)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")


def test_nothing_is_changed_without_the_value_that_the_form_has(client: TestClient) -> None:
    signed_in(client)
    for path in ("/settings/tokens", "/settings/projects", "/settings/p/team/members", "/settings/p/team/visibility"):
        assert client.post(path, data={"name": "x", "role": "reader"}, headers=OWN).status_code == 403


def test_an_admin_hands_out_a_token(browser: Any, tmp_path: Path) -> None:
    with listening(create_app(service_in(tmp_path))) as url, Opened(browser, f"{url}/settings", "light") as view:
        page = view.page
        page.get_by_label("Token").fill(ADMIN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("New project").fill("fresh")
        page.get_by_role("button", name="Make project").click()
        page.get_by_label("For whom").fill("erin")
        page.locator("#role").select_option("writer")
        page.get_by_role("button", name="Make token").click()
        assert page.locator(".answer code").first.inner_text().startswith("mr_")
        page.get_by_role("button", name=re.compile("^Revoke ")).click()
        page.wait_for_url("**/settings/p/fresh")
        assert page.get_by_role("button", name=re.compile("^Revoke ")).count() == 0
        assert view.said == []
