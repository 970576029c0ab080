"""The application as a whole: whom it answers, and how it says that it is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx2
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from tests.service.serving import listening, service_in


def test_a_server_says_that_it_runs_and_that_it_can_serve(tmp_path: Path) -> None:
    with listening(create_app(service_in(tmp_path))) as url:
        for path in ("/livez", "/readyz"):
            assert httpx2.get(f"{url}{path}").json() == {"status": "ok"}
        assert httpx2.get(f"{url}/nothing").json()["code"] == "HTTP_404"


def test_a_server_that_cannot_serve_is_alive_and_not_ready(tmp_path: Path) -> None:
    (tmp_path / "maskreg.json").write_text("{}")
    client = TestClient(create_app(service_in(tmp_path)))
    assert client.get("/livez").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code >= 400
    assert "identity" in answer.json()["title"]


def test_requests_to_another_host_are_refused(tmp_path: Path) -> None:
    app = create_app(replace(service_in(tmp_path), hosts=("registry.example",)))
    assert TestClient(app, "http://registry.example").get("/livez").status_code == 200
    assert TestClient(app, "http://evil.example").get("/livez").status_code == 400
