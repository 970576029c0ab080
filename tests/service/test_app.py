"""The application as a whole: whom it answers, and how it says that it is well."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from tests.service.serving import service_in


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
