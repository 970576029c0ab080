"""That every route says what it demands, and that what it demands holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient

from maskreg.service import access, problems
from maskreg.service import app as service_app
from maskreg.service.access import PUBLIC, Needs, Where
from maskreg.service.auth.roles import Role
from tests.service.serving import headers, service_in

ROUTES = {
    "read": Needs(Role.READER),
    "write": Needs(Role.WRITER),
    "manage": Needs(Role.ADMIN),
    "any": Needs(Role.READER, Where.ANY),
    "server": Needs(Role.ADMIN, Where.SERVER),
}


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """An app with a route for every demand."""
    app = FastAPI()
    app.state.service = service_in(tmp_path)
    for name, demand in ROUTES.items():
        path = f"/{name}/{{project}}" if demand.where is Where.PROJECT else f"/{name}"
        app.get(path, dependencies=[Depends(demand)])(lambda: "")
    problems.install(app)
    return app


def test_visitors_read_a_public_project(app: FastAPI, tmp_path: Path) -> None:
    app.state.service = service_in(tmp_path, frozenset({"team"}))
    client = TestClient(app)
    for token in ("", "stranger-token"):
        assert client.get("/read/team", headers=headers(token)).status_code == 200
    assert client.get("/write/team").status_code == 401


def test_a_refusal_is_a_problem_with_a_code(app: FastAPI) -> None:
    answer = TestClient(app).get("/write/team", headers=headers("reader-token"))
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "bob is reader in project team; this needs the role writer",
        "status": 403,
        "code": "DENIED",
        "hint": "maskreg whoami lists your roles; an admin gives others",
    }
    assert TestClient(app).get("/read/team").headers["www-authenticate"] == "Bearer"


def test_a_route_that_takes_a_key_twice_is_refused() -> None:
    app = FastAPI()

    def write(row: dict[str, str]) -> None:
        """Read a document."""

    app.post("/{project}", dependencies=[Depends(Needs(Role.WRITER))])(write)
    with pytest.raises(AssertionError, match="takes a key twice"):
        access.describe(app)


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
    with pytest.raises(AssertionError, match=r"/open demands nothing|cannot demand anything"):
        service_app.create_app(service_in(tmp_path))


def test_the_demand_stands_in_the_document(app: FastAPI) -> None:
    app.get("/all", dependencies=[PUBLIC])(lambda: "")
    access.describe(app)
    paths = app.openapi()["paths"]
    assert paths["/read/{project}"]["get"]["x-access"] == {"role": "reader", "where": "project"}
    assert paths["/all"]["get"]["x-access"] == {"role": "none", "where": "nowhere"}
