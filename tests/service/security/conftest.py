"""A server with artifacts in three projects, and beside its folder what must stay out of reach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from maskreg.digest import Digest
from maskreg.service.app import create_app, routers
from maskreg.service.context import Service
from tests.service.labs import Filled
from tests.service.serving import headers, service_in

SECRET = "the secret of a neighbor"

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Site:
    """A server with artifacts ``opd``, ``rlvr`` and ``hidden``; its home and ``home-evil/secret`` lie in a folder."""

    service: Service
    folder: Path
    digests: Mapping[str, Digest]

    def client(self, token: str = "") -> TestClient:
        """A client that sends a token."""
        app = create_app(self.service)
        return TestClient(
            app, "http://localhost", headers=headers(token), raise_server_exceptions=False, follow_redirects=False
        )

    def around(self) -> dict[str, bytes]:
        """All files beside the home, by their names."""
        home = self.folder / "home"
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_relative_to(home)]
        return {str(path): path.read_bytes() for path in files}


def routes() -> list[tuple[str, str]]:
    """Method and path of every route."""
    return [
        (method, prefix + route.path)
        for prefix, router in routers()
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in METHODS
        if method in (route.methods or ())
    ]


@pytest.fixture(scope="module")
def site(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server for the tests of a module."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(filled.home, folder / "home")
    (folder / "home-evil").mkdir()
    (folder / "home-evil" / "secret").write_text(SECRET)
    with service_in(folder / "home") as service:
        yield Site(service, folder, filled.digests)
