"""The application as a whole: its routes, the names that it answers to, and what it answers where it has nothing."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from maskreg.errors import UsageError
from maskreg.service import api
from maskreg.service import app as service_app
from maskreg.service.app import create_app
from maskreg.service.start import Options, open_service
from tests.repository import ROOT
from tests.service.labs import Lab
from tests.service.serving import ADMIN, headers, service_in


def test_a_route_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = re.search(r"\*\*A route\*\*.*?```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert recipe is not None
    (tmp_path / "notes.py").write_text(recipe[1])
    monkeypatch.setattr(api, "__path__", [*api.__path__, str(tmp_path)])
    try:
        with service_in(tmp_path / "home") as service:
            client = TestClient(create_app(service), "http://localhost")
            path = "/api/v1/projects/team/notes/today"
            assert client.put(path, json={"text": "hi"}, headers=headers("reader-token")).status_code == 403
            assert client.put(path, json={"text": "hi"}, headers=headers("writer-token")).json() == {"by": "ada"}
            (newest,) = service.accounts.audit("team", limit=1)
            assert (newest.by, newest.action, newest.subject) == ("ada", "write note", "today")
    finally:
        sys.modules.pop("maskreg.service.api.notes", None)


@pytest.mark.parametrize("add", ["route", "mount"])
def test_an_application_with_a_route_without_a_demand_does_not_start(
    add: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = APIRouter()
    if add == "route":
        router.get("/open")(lambda: "")
    else:
        router.mount("/open", FastAPI())
    monkeypatch.setattr(service_app, "routers", lambda: [("", router)])
    with service_in(tmp_path) as service, pytest.raises(AssertionError, match="/open"):
        create_app(service)


@pytest.mark.parametrize(
    ("names", "host", "is_known"),
    [
        (("masks.example",), "MASKS.example:8470", True),
        (("[::1]",), "[::1]:8470", True),
        (("*.masks.example",), "a.masks.example", True),
        (("*",), "anything", True),
        *((("*.masks.example",), host, False) for host in ("masks.example", "evilmasks.example")),
        *((("masks.example",), f"masks.example{end}", False) for end in ("@evil.example", ".evil.example")),
        *((("masks.example",), host, False) for host in ("evil.example:8470", "")),
        (("www.masks.example",), "masks.example", False),
    ],
)
def test_other_host_names_are_refused(shared: Lab, names: tuple[str, ...], host: str, is_known: bool) -> None:
    client = TestClient(create_app(replace(shared.service, hosts=names)), headers=headers(ADMIN))
    for method, path in (("GET", "/livez"), ("GET", "/"), ("POST", "/api/v1/projects")):
        answer = client.request(method, path, headers={"Host": host, "X-Forwarded-Host": "masks.example"})
        if is_known:
            assert answer.status_code in (200, 422)
        else:
            assert (answer.status_code, answer.json()["code"]) == (400, "USAGE")
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["", "http://masks.example", "masks.example:8470", "a b", "a/b", "*x.example", "::1"])
def test_what_is_no_host_name_cannot_be_allowed(name: str) -> None:
    with pytest.raises(UsageError):
        open_service(Options(hosts=("*.masks.example", name)))


def test_an_address_where_nothing_is_has_the_code_of_the_command_line(shared: Lab) -> None:
    client = shared.client(ADMIN)
    nothing, refused = client.get("/api/v1/nothing"), client.post("/api/v1/artifacts")
    assert (nothing.status_code, nothing.json()["code"]) == (404, "NOT_FOUND")
    assert (refused.status_code, refused.json()["code"]) == (405, "USAGE")
    page = client.get("/nothing", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
