"""Labs: a served registry with artifacts in three projects, and clients for the people of ``tests.service.serving``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import maskreg
from maskreg.digest import Digest
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.settings import Settings
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.service.serving import headers, service_in

SOURCE: dict[str, Tensor] = {
    "model.embed_tokens.weight": bf16((40, 16), 1),
    "model.layers.0.self_attn.q_proj.weight": bf16((16, 16), 2),
    "model.layers.0.mlp.up_proj.weight": bf16((64, 16), 3),
}


@dataclass
class Lab:
    """A served registry, and its artifacts by the names ``opd``, ``rlvr`` and ``hidden``."""

    service: Service
    app: FastAPI
    digests: Mapping[str, Digest]

    @property
    def workspace(self) -> maskreg.Workspace:
        """The workspace of the server."""
        return self.service.workspace

    def client(self, token: str = "reader-token") -> TestClient:
        """A client that sends a token."""
        return TestClient(self.app, headers=headers(token), raise_server_exceptions=False)

    def get(self, path: str, token: str = "reader-token", **params: Any) -> Any:
        """The document of an answer, which has to be 200."""
        answer = self.client(token).get(f"/api/v1{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


def fill(workspace: maskreg.Workspace, folder: Path) -> dict[str, Digest]:
    """Extract three artifacts: ``team/opd:v1``, ``team/rlvr`` and ``secret/hidden``."""
    source = make_checkpoint(folder / "source", SOURCE)
    digests = {}
    names = {"opd": "team/opd:v1", "rlvr": "team/rlvr", "hidden": "secret/hidden"}
    for number, (label, name) in enumerate(names.items()):
        target = {key: moved(tensor, 0.2 + 0.2 * number, number) for key, tensor in SOURCE.items()}
        after, method = make_checkpoint(folder / label, target), "rlvr" if label == "rlvr" else "opd"
        made = maskreg.extract(source, after, name, family="toy", method=method, workspace=workspace)
        digests[label] = made.digest
    return digests


@dataclass(frozen=True)
class Filled:
    """The folder of a registry that is never served or changed, as each lab gets a copy, and its artifacts."""

    home: Path
    digests: Mapping[str, Digest]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """The registry that labs copy."""
    folder = tmp_path_factory.mktemp("filled")
    with maskreg.Workspace(Settings.load(home=str(folder / "home"))) as space:
        return Filled(folder / "home", fill(space, folder))


@pytest.fixture(scope="module")
def shared(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that tests only read."""
    yield from _lab(filled, tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(filled: Filled, tmp_path: Path) -> Iterator[Lab]:
    """A lab of one test."""
    yield from _lab(filled, tmp_path)


def _lab(filled: Filled, folder: Path) -> Iterator[Lab]:
    shutil.copytree(filled.home, folder / "home")
    service = service_in(folder / "home")
    yield Lab(service, create_app(service), filled.digests)
    service.close()
