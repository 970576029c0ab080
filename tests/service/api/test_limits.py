"""Quotas, limits of requests, names that were removed, and the record of who changed something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.errors import RateLimitedError
from maskreg.service.app import create_app
from maskreg.service.middleware import RateLimits, Throttle
from tests.service.labs import Lab
from tests.service.serving import ADMIN, ROOT, headers


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_again() -> None:
    clock = Clock()
    throttle = Throttle(2.0, 3, clock=clock)
    for _ in range(3):
        throttle.take("ada")
    with pytest.raises(RateLimitedError) as caught:
        throttle.take("ada")
    assert caught.value.retry_after_s == 1
    throttle.take("bob")
    clock.now = 0.5
    throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada", 0)
    clock.now = 1000
    for _ in range(3):
        throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada")


def limited(lab: Lab, **throttles: Throttle) -> TestClient:
    """A client of the same server, with limits of which most are out of reach."""
    limits = replace(RateLimits.of(1e6), **throttles)
    return TestClient(create_app(replace(lab.service, limits=limits)))


def test_an_account_and_an_address_have_limits_of_their_own(lab: Lab) -> None:
    client = limited(lab, accounts=Throttle(0.1, 2), addresses=Throttle(0.1, 1))
    path = "/api/v1/projects"
    assert [client.get(path, headers=headers("reader-token")).status_code for _ in range(3)] == [200, 200, 429]
    assert client.get(path, headers=headers("writer-token")).status_code == 200
    assert [client.get(path).status_code for _ in range(2)] == [200, 429]
    answer = client.get(path)
    assert (answer.json()["code"], answer.headers["retry-after"]) == ("RATE_LIMITED", "10")
    assert client.get("/livez").status_code == 200


def test_who_tries_tokens_has_to_wait(lab: Lab) -> None:
    client = limited(lab, failures=Throttle(0.1, 3))
    path = "/api/v1/whoami"
    assert [client.get(path, headers=headers(f"wrong-{n}")).status_code for n in range(4)] == [401, 401, 401, 429]
    assert client.post("/sign-in", data={"token": "wrong"}).status_code == 429


def put_tag(lab: Lab, path: str, artifact: str, token: str = "writer-token") -> tuple[int, Any]:
    new = {"If-None-Match": "*"}
    answer = lab.client(token).put(f"/api/v1/projects/{path}", json={"artifact": artifact}, headers=new)
    return answer.status_code, answer.json()


def test_a_project_holds_as_much_as_its_quota_says(lab: Lab) -> None:
    lab.service.accounts.projects.change("team", ROOT, max_artifacts=2)
    assert put_tag(lab, "team/refs/opd/again", str(lab.digests["opd"]))[0] == 201
    status, problem = put_tag(lab, "team/refs/other/v1", str(lab.digests["hidden"]), ADMIN)
    assert (status, problem["code"]) == (507, "QUOTA_EXCEEDED")
    lab.service.accounts.projects.change("team", ROOT, max_artifacts=None, max_bytes=1)
    status, problem = put_tag(lab, "team/refs/other/v1", str(lab.digests["hidden"]), ADMIN)
    assert (status, problem["code"]) == (507, "QUOTA_EXCEEDED")
    lab.service.accounts.projects.change("team", ROOT, max_bytes=1 << 40)
    assert put_tag(lab, "team/refs/other/v1", str(lab.digests["hidden"]), ADMIN)[0] == 201


def test_who_changed_something_is_recorded_with_the_token(lab: Lab) -> None:
    token = lab.service.accounts.authenticate("writer-token").token
    put_tag(lab, "team/refs/opd/v9", str(lab.digests["opd"]))
    put_tag(lab, "team/refs/opd/v9", "nothing", "reader-token")
    newest = lab.service.accounts.audit("team")[0]
    assert (newest.by, newest.token, newest.action) == ("ada", token, "set tag")
    assert newest.subject == "team/opd:v9"
    before = len(lab.service.accounts.audit(limit=1000))
    lab.get("/projects")
    assert len(lab.service.accounts.audit(limit=1000)) == before


def test_what_accounts_record_themselves_is_recorded_once(lab: Lab) -> None:
    before = len(lab.service.accounts.audit(limit=1000))
    answer = lab.client(ADMIN).put("/api/v1/projects/team/members/grace", json={"role": "reader"})
    assert answer.status_code == 200
    assert len(lab.service.accounts.audit(limit=1000)) == before + 1
    browser = TestClient(lab.app, "http://localhost", headers={"Origin": "http://localhost"}, follow_redirects=False)
    browser.post("/sign-in", data={"token": ADMIN})
    assert browser.post("/api/v1/projects", json={"name": "paper"}).status_code == 201
    newest = lab.service.accounts.audit(limit=3)
    assert [event.action for event in newest] == ["create project", "sign in", "grant"]
