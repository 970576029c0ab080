"""The recipe of CONTRIBUTING for a route, walked: one file, and the application has it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from maskreg.service import api
from maskreg.service.app import create_app
from tests.repository import ROOT
from tests.service.serving import headers, service_in


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
