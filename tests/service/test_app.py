"""The application as a whole: whom it answers, and how it says that it is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient

from maskreg.service import app
from maskreg.service.app import create_app
from tests.service.serving import listening, service_in


def test_a_server_says_that_it_runs_and_that_it_can_serve(tmp_path: Path) -> None:
    with listening(create_app(service_in(tmp_path))) as url:
        for path in ("/livez", "/readyz"):
            assert httpx2.get(f"{url}{path}").json() == {"status": "ok"}
        assert httpx2.get(f"{url}/nothing").json()["code"] == "NOT_FOUND"


def test_a_server_that_cannot_serve_is_alive_and_not_ready(tmp_path: Path) -> None:
    (tmp_path / "maskreg.json").write_text("{}")
    client = TestClient(create_app(service_in(tmp_path)))
    assert client.get("/livez").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code >= 400
    assert "identity" in answer.json()["title"]


def test_a_server_whose_registry_has_gone_is_not_ready(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As below a disk that is not mounted any more: what it would write there is lost."""
    home = tmp_path / "home"
    service = service_in(home)
    uuid = service.registry.ensure_uuid()
    client = TestClient(create_app(service))
    assert client.get("/readyz").json() == {"status": "ok"}
    identity = (home / "maskreg.json").read_bytes()
    (home / "maskreg.json").unlink()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert f"held the registry {uuid} and holds none now" in caplog.text
    (home / "maskreg.json").write_bytes(identity)
    assert client.get("/readyz").json() == {"status": "ok"}


def test_every_route_of_the_application_says_whom_it_lets_in(tmp_path: Path) -> None:
    paths = create_app(service_in(tmp_path)).openapi()["paths"]
    silent = [path for path, methods in paths.items() for method in methods.values() if "x-access" not in method]
    assert len(paths) > 10
    assert silent == []


def test_a_router_with_a_route_that_demands_nothing_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = APIRouter()
    router.get("/open")(lambda: "")
    monkeypatch.setattr(app, "routers", lambda: [("", router)])
    with pytest.raises(AssertionError, match="/open demands nothing"):
        create_app(service_in(tmp_path))


def test_requests_to_another_host_are_refused(tmp_path: Path) -> None:
    served = create_app(replace(service_in(tmp_path), hosts=("registry.example",)))
    assert TestClient(served, "http://registry.example").get("/livez").status_code == 200
    assert TestClient(served, "http://evil.example").get("/livez").status_code == 400
