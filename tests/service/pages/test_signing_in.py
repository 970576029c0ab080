"""Signing in and out, and that no page elsewhere can act for a person who did."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.pages.signing_in import local
from tests.browser import Opened
from tests.service.serving import ADMIN

OWN = {"Origin": "http://localhost"}


def signed_in(client: TestClient) -> None:
    """Sign in as an admin."""
    answer = client.post("/sign-in", data={"token": ADMIN, "next": "/glossary"}, headers=OWN, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/glossary"


def test_a_session_may_what_its_token_may(client: TestClient) -> None:
    assert client.get("/p/secret/plan:v1", follow_redirects=False).status_code == 303
    signed_in(client)
    assert client.get("/p/secret/plan:v1").status_code == 200
    assert ">root</a>" in client.get("/").text


def test_signing_out_ends_the_session(client: TestClient) -> None:
    signed_in(client)
    cookies = dict(client.cookies)
    assert client.post("/sign-out", headers=OWN).status_code == 200
    client.cookies.update(cookies)
    assert "Sign in" in client.get("/").text
    assert client.get("/p/secret/plan:v1", follow_redirects=False).status_code == 303


def test_a_token_that_is_not_valid_is_said_and_not_shown(client: TestClient) -> None:
    answer = client.post("/sign-in", data={"token": "mr_not_valid"}, headers=OWN)
    assert answer.status_code == 401
    assert "The token is not valid" in answer.text
    assert "mr_not_valid" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "address",
    [
        *("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "evil", ""),
        *("\\\\evil.example", "/\n/evil.example", "/\t/evil.example", "http:/evil.example", " //evil.example"),
    ],
)
def test_the_next_page_is_on_this_server(client: TestClient, address: str) -> None:
    assert local(address) == "/"
    headers = {**OWN, "Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/sign-in", data={"token": ADMIN, "next": address}, headers=headers, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_a_person_signs_in_reads_and_signs_out(browser: Any, served: str) -> None:
    with Opened(browser, f"{served}/p/secret", "light") as view:
        page = view.page
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Token").fill(ADMIN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/p/secret")
        page.get_by_role("link", name="plan:v1").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign in").wait_for()
        page.goto(f"{served}/p/secret")
        assert "/sign-in" in page.url
