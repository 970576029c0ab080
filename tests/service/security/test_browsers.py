"""What pages elsewhere can make a browser do here: nothing. And what a browser can do with answers."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.service.access import COOKIE
from maskreg.service.app import create_app
from maskreg.service.middleware import HEADERS, MAX_BYTES
from tests.service.security.conftest import Site, routes
from tests.service.serving import ADMIN, headers

ELSEWHERE = "https://evil.example"


@pytest.fixture
def browser(site: Site) -> TestClient:
    browser = site.client()
    assert browser.post("/sign-in", data={"token": ADMIN}).status_code == 303
    assert COOKIE in browser.cookies
    return browser


def test_no_answer_lets_a_page_elsewhere_read_it(site: Site) -> None:
    client = site.client(ADMIN)
    preflight = {"Origin": ELSEWHERE, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x"}
    for method, path in routes():
        for verb in {method, "OPTIONS"}:
            answer = client.request(verb, path, headers=preflight)
            assert not [name for name in answer.headers if name.startswith("access-control")], f"{verb} {path}"
            assert verb != "OPTIONS" or answer.status_code == 405


def test_every_answer_says_what_a_browser_must_not_do_with_it(site: Site) -> None:
    client = site.client(ADMIN)
    answers = [client.request(method, path) for method, path in routes()]
    answers += [
        client.get("/nothing"),
        client.get("/livez", headers={"Host": "evil.example"}),
        client.post("/api/v1/projects", content=b"x" * (MAX_BYTES + 1)),
        client.get(f"/api/v1/objects/{artifact_prefix(site.digests['opd'])}{MANIFEST}"),
    ]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, answer.request.url
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert answers[-1].headers["content-type"] == "application/octet-stream"


def test_a_cookie_alone_changes_nothing(browser: TestClient) -> None:
    changing = [(method, path) for method, path in routes() if method not in ("GET", "HEAD") and path != "/sign-in"]
    assert len(changing) > 10
    for method, path in changing:
        path = re.sub(r"{[^}]+}", "team", path)
        for media in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
            answer = browser.request(method, path, content=b"{}", headers={"Content-Type": media})
            assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
    assert browser.get("/").status_code == 200


def test_an_empty_header_is_no_token(browser: TestClient) -> None:
    for value in ("", " "):
        answer = browser.post("/api/v1/projects", json={"name": "forged"}, headers={"Authorization": value})
        assert answer.status_code == 403
    assert browser.get("/api/v1/projects/forged").status_code == 404


def test_a_session_that_was_planted_is_not_taken_over(site: Site) -> None:
    planted = "A" * 43
    client = site.client()
    client.cookies.set(COOKIE, planted, domain="localhost.local")
    assert client.post("/sign-in", data={"token": "reader-token"}).status_code == 403
    client.cookies.clear()
    answer = client.post("/sign-in", data={"token": "reader-token"})
    given = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
    assert answer.status_code == 303 and given != planted
    thief = site.client()
    thief.cookies.set(COOKIE, planted, domain="localhost.local")
    assert thief.get("/api/v1/whoami").status_code == 401


def test_the_cookie_is_no_token_and_the_token_no_cookie(browser: TestClient, site: Site) -> None:
    cookie = browser.cookies[COOKIE]
    assert site.client(cookie).get("/api/v1/whoami").status_code == 401
    thief = site.client()
    thief.cookies.set(COOKIE, ADMIN, domain="localhost.local")
    assert thief.get("/api/v1/whoami").status_code == 401


def test_the_cookie_is_for_this_server_and_not_for_scripts(site: Site) -> None:
    app = create_app(site.service)
    for url, secure in (("http://localhost", False), ("https://masks.example", True)):
        answer = TestClient(app, url, follow_redirects=False).post("/sign-in", data={"token": " writer-token\n"})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Max-Age=43200" in cookie
        assert ("Secure" in cookie, "writer-token" in cookie) == (secure, False)


@pytest.mark.parametrize(
    "sent",
    [
        *({"Origin": origin} for origin in ("null", "http://localhost.evil.example", "http://localhost:81")),
        *({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": ""}),
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    ],
    ids=str,
)
def test_a_page_elsewhere_changes_nothing(browser: TestClient, site: Site, sent: dict[str, str]) -> None:
    assert browser.post("/api/v1/projects", json={"name": "forged"}, headers=sent).status_code == 403
    assert site.client().post("/sign-in", data={"token": ADMIN}, headers=sent).status_code == 403


def test_a_page_of_this_server_changes_something_behind_a_proxy_too(browser: TestClient) -> None:
    sent = {"Sec-Fetch-Site": "same-origin", "Origin": "https://masks"}
    assert browser.post("/api/v1/projects", json={"name": "own"}, headers=sent).status_code == 201


def test_a_bearer_token_goes_before_the_cookie(browser: TestClient) -> None:
    assert browser.get("/api/v1/whoami", headers=headers("reader-token")).json()["name"] == "bob"
    assert browser.get("/api/v1/whoami", headers=headers("wrong")).status_code == 401


def test_signing_in_again_ends_the_session_before(browser: TestClient) -> None:
    cookie = browser.cookies[COOKIE]
    assert browser.post("/sign-in", data={"token": ADMIN}, headers={"Origin": "http://localhost"}).status_code == 303
    browser.cookies.clear()
    browser.cookies.set(COOKIE, cookie, domain="localhost.local")
    assert browser.get("/api/v1/whoami").status_code == 401
