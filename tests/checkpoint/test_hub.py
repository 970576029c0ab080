from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from huggingface_hub import constants

from maskreg.checkpoint import open_checkpoint
from maskreg.errors import NotAllowedError, NotFoundError, UnavailableError
from tests.store.hosting import Host, Reply

ANSWERS = {
    "missing": (404, "RepoNotFound", NotFoundError),
    "private": (401, "RepoNotFound", NotFoundError),
    "revision": (404, "RevisionNotFound", NotFoundError),
    "gated": (403, "GatedRepo", NotAllowedError),
    "broken": (400, "", UnavailableError),
}


def refuse(_: str, path: str, headers: dict[str, str]) -> Reply:
    """The model's name says how the hub refuses."""
    status, code, _error = next(answer for name, answer in ANSWERS.items() if f"/org/{name}" in path)
    body = json.dumps({"error": code}).encode()
    return status, {"Content-Type": "application/json", **({"X-Error-Code": code} if code else {})}, body


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with closing(Host(refuse)) as host:
        monkeypatch.setattr(constants, "ENDPOINT", host.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.chdir(tmp_path)
        yield


@pytest.mark.parametrize("name", ANSWERS)
def test_what_the_hub_refuses(hub: None, name: str) -> None:
    with pytest.raises(ANSWERS[name][2], match=f"org/{name}"):
        open_checkpoint(f"org/{name}", download=True)
