"""Sessions of browsers: what the cookie is, and which requests it is enough for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Form, Request, Response
from fastapi.testclient import TestClient

from maskreg.service import access, problems
from maskreg.service.access import Kept, Needs, Public, Where
from maskreg.service.auth.roles import Principal, Role
from tests.service.serving import headers, service_in

Writer = Annotated[Principal, Depends(Needs(Role.WRITER, audited="write"))]
PUBLIC = Depends(Public(Role.NONE, Where.NOWHERE, Kept.NOT))
OWN = {"Origin": "http://localhost"}


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """An app with a form to sign in, one that changes something, and a page."""
    app = FastAPI()
    app.state.service = service_in(tmp_path)

    @app.post("/sign-in", dependencies=[PUBLIC])
    def sign_in(request: Request, response: Response, token: Annotated[str, Form()]) -> str:
        principal = access.authenticate(request, token.strip())
        access.sign_in(request, response, principal)
        return principal.name

    @app.post("/sign-out", dependencies=[PUBLIC])
    def sign_out(request: Request, response: Response) -> None:
        access.sign_out(request, response)

    @app.get("/{project}/page")
    def page(request: Request, project: str, _: Annotated[Principal, Depends(Needs(Role.READER))]) -> str:
        return project

    @app.post("/{project}/note")
    def note(project: str, principal: Writer, text: Annotated[str, Form()]) -> str:
        return f"{principal.name}: {text}"

    @app.put("/{project}/raw")
    def raw(project: str, principal: Writer) -> str:
        return principal.name

    problems.install(app)
    return app


@pytest.fixture
def browser(app: FastAPI) -> TestClient:
    """A browser that is signed in."""
    browser = TestClient(app, "http://localhost")
    assert browser.post("/sign-in", data={"token": "writer-token"}).json() == "ada"
    return browser


def test_the_cookie_is_for_this_server_and_not_for_scripts(app: FastAPI) -> None:
    for url, secure in (("http://localhost", False), ("https://masks.example", True)):
        answer = TestClient(app, url).post("/sign-in", data={"token": " writer-token\n"})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Max-Age=43200" in cookie
        assert ("Secure" in cookie) == secure
        assert "writer-token" not in cookie


def test_a_session_reads_and_the_pages_of_this_server_change(browser: TestClient) -> None:
    assert browser.get("/team/page").json() == "team"
    assert browser.post("/team/note", data={"text": "hi"}, headers=OWN).json() == "ada: hi"
    # Over TLS, behind a proxy that sends another Host.
    assert (
        browser.put("/team/raw", headers={"Sec-Fetch-Site": "same-origin", "Origin": "https://masks"}).json() == "ada"
    )


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:81"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": ""},
    ],
    ids=str,
)
def test_a_page_elsewhere_changes_nothing(browser: TestClient, sent: dict[str, str]) -> None:
    answer = browser.post("/team/note", data={"text": "hi"}, headers=sent)
    assert (answer.status_code, answer.json()["code"]) == (403, "DENIED")
    assert browser.put("/team/raw", headers=sent).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["another origin", "no origin", "what the browser says"],
)
def test_a_page_elsewhere_does_not_sign_in(app: FastAPI, origin: dict[str, str]) -> None:
    answer = TestClient(app, "http://localhost").post("/sign-in", data={"token": "writer-token"}, headers=origin)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_bearer_token_needs_no_form_and_goes_before_the_cookie(browser: TestClient) -> None:
    assert browser.put("/team/raw", headers=headers("admin-token")).json() == "root"
    assert browser.put("/team/raw", headers=headers("reader-token")).status_code == 403
    assert browser.get("/team/page", headers=headers("wrong")).status_code == 401


def test_signing_in_again_ends_the_session_before(browser: TestClient) -> None:
    cookie = browser.cookies["maskreg_session"]
    assert browser.post("/sign-in", data={"token": "writer-token"}, headers=OWN).status_code == 200
    browser.cookies.clear()
    browser.cookies.set("maskreg_session", cookie)
    assert browser.get("/team/page").status_code == 401
