"""Signing in with an OpenID provider: a real one, started for these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient

from maskreg.errors import ConfigError, MaskregError, NotAllowedError
from maskreg.service.access import COOKIE
from maskreg.service.app import create_app
from maskreg.service.auth.openid import Attempt, OpenId, client_secret, mapping
from maskreg.service.auth.projects import Person
from maskreg.service.auth.roles import Role
from maskreg.service.context import Service
from tests.repository import ROOT as REPOSITORY
from tests.servers import free_ports, wait_until
from tests.service.serving import ROOT, service_in

USERS = {
    "ada-1": '{"email": "Ada@Lab.example", "email_verified": true, "groups": ["science"]}',
    "eve-1": '{"preferred_username": "root", "email": "eve@lab.example", "email_verified": false, "groups": "science"}',
    "bob-1": '{"preferred_username": "bob.b", "groups": ["other", 7, null]}',
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    (port,) = free_ports(1)
    claims = [part for sub, more in USERS.items() for part in ("--user-claims", f'{{"sub": "{sub}", {more[1:]}')]
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.provider", "--port", str(port), *claims]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx2.get(f"{url}/.well-known/openid-configuration").status_code == 200
        except httpx2.TransportError:
            return False

    assert wait_until(ready, process)
    yield url
    process.kill()
    process.wait()


@pytest.fixture
def service(issuer: str, tmp_path: Path) -> Iterator[Service]:
    openid = OpenId(issuer, "maskreg", grants=("science=team:writer",), env={"MASKREG_OIDC_SECRET": "word"})
    service = replace(service_in(tmp_path), openid=openid)
    yield service
    service.close()


@pytest.fixture
def browser(service: Service) -> TestClient:
    return TestClient(create_app(service), "http://localhost", follow_redirects=False)


def to_provider(browser: TestClient, next: str = "/") -> str:
    answer = browser.get("/sign-in/oidc", params={"next": next})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def at_provider(address: str, sub: str) -> str:
    answer = httpx2.post(address, data={"sub": sub})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"].removeprefix("http://localhost")


def sign_in(browser: TestClient, sub: str, next: str = "/") -> httpx2.Response:
    return browser.get(at_provider(to_provider(browser, next), sub))


def who(browser: TestClient) -> tuple[str, dict[str, str]]:
    identity = browser.get("/api/v1/whoami").json()
    return identity["name"], identity["projects"]


def test_a_person_signs_in_and_has_the_roles_of_their_groups(browser: TestClient) -> None:
    answer = sign_in(browser, "ada-1", "/team")
    assert (answer.status_code, answer.headers["location"]) == (303, "/team")
    assert who(browser) == ("ada@lab.example", {"team": "writer"})
    assert "maskreg_sign_in" not in browser.cookies
    assert "HttpOnly" in str(answer.headers.get_list("set-cookie"))


def test_the_provider_sees_no_secret_and_gets_a_challenge(browser: TestClient) -> None:
    query = {key: values[0] for key, values in parse_qs(urlsplit(to_provider(browser)).query).items()}
    assert query["code_challenge_method"] == "S256"
    assert query["scope"].split()[0] == "openid"
    assert query["redirect_uri"] == "http://localhost/sign-in/oidc/callback"
    cookie = browser.cookies["maskreg_sign_in"].strip('"').partition(".")[0]
    attempt = Attempt(cookie)
    assert query["state"] == attempt.value("state")
    assert query["nonce"] == attempt.value("nonce")
    assert {cookie, attempt.value("verifier"), "word"} & set(query.values()) == set()
    assert cookie not in repr(attempt)


def test_an_answer_for_another_browser_is_refused(browser: TestClient, service: Service) -> None:
    back = at_provider(to_provider(browser), "ada-1")
    other = TestClient(create_app(service), "http://localhost", follow_redirects=False)
    assert other.get(back).status_code == 401
    to_provider(other)
    assert other.get(back).status_code == 401
    assert COOKIE not in other.cookies


@pytest.mark.parametrize("change", ["nonce", "audience", "refusal", "no code", "verifier", "state"])
def test_what_the_provider_did_not_say_to_us_is_refused(
    change: str, browser: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = at_provider(to_provider(browser), "ada-1")
    if change == "refusal":
        back = back.partition("?")[0] + "?error=access_denied"
    elif change == "no code":
        back = back.replace("code=", "other=")
    elif change in ("nonce", "verifier", "state"):
        value = Attempt.value
        monkeypatch.setattr(Attempt, "value", lambda self, kind: "x" * 64 if kind == change else value(self, kind))
    else:
        assert service.openid is not None
        monkeypatch.setattr(service.openid, "client_id", "another")
    assert browser.get(back).status_code == 401
    assert COOKIE not in browser.cookies


def test_a_provider_does_not_hand_out_accounts_of_the_server(browser: TestClient, service: Service) -> None:
    answer = sign_in(browser, "eve-1")
    assert answer.status_code == 403
    assert COOKIE not in browser.cookies


def test_who_was_invited_by_a_verified_address_gets_that_account(browser: TestClient, service: Service) -> None:
    service.accounts.members.grant("paper", "ada@lab.example", Role.ADMIN, ROOT)
    sign_in(browser, "ada-1")
    assert who(browser) == ("ada@lab.example", {"paper": "admin", "team": "writer"})
    with pytest.raises(NotAllowedError):
        service.accounts.people.sign_in(Person("elsewhere 1", "ada@lab.example", verified=True))


def test_roles_follow_the_groups_and_those_of_admins_stay(browser: TestClient, service: Service) -> None:
    sign_in(browser, "bob-1")
    assert who(browser) == ("bob.b", {})
    person = Person("idp 9", "grace")
    service.accounts.people.sign_in(person, {"team": Role.WRITER})
    service.accounts.members.grant("paper", "grace", Role.READER, ROOT)
    principal = service.accounts.people.sign_in(person, {"team": Role.ADMIN, "paper": Role.ADMIN})
    cookie = service.accounts.sessions.begin(principal)
    session = service.accounts.sessions.principal(cookie)
    assert session is not None and dict(session.grants) == {"team": Role.ADMIN, "paper": Role.READER}
    service.accounts.people.sign_in(person, {})
    assert service.accounts.sessions.principal(cookie) is None
    again = service.accounts.sessions.principal(service.accounts.sessions.begin(principal))
    assert again is not None and dict(again.grants) == {"paper": Role.READER}


def test_a_provider_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    openid = OpenId(f"http://127.0.0.1:{port}", "maskreg", env={})
    service = replace(service_in(tmp_path), openid=openid)
    answer = TestClient(create_app(service), "http://localhost").get("/sign-in/oidc")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")


@pytest.mark.parametrize("url", ["http://idp.example", "idp.example", "https://user:word@idp.example", "file:///idp"])
def test_an_issuer_that_cannot_be_trusted_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        OpenId(url, "maskreg", env={})


@pytest.mark.parametrize("text", ["science", "science=team", "science=team:owner", "=team:reader", "science=:reader"])
def test_a_malformed_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}'"):
        mapping((text,))


def test_the_secret_is_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("word\n")
    path.chmod(0o600)
    env = {"MASKREG_OIDC_SECRET_FILE": str(path)}
    assert client_secret(env) == "word"
    path.chmod(0o644)
    with pytest.raises(NotAllowedError):
        client_secret(env)
    path.unlink()
    with pytest.raises(MaskregError):
        client_secret(env)
