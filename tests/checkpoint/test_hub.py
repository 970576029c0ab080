from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from maskreg.checkpoint import open_checkpoint
from maskreg.errors import NotAllowedError, NotFoundError, UnavailableError

ANSWERS = {
    "missing": (404, "RepoNotFound", NotFoundError),
    "private": (401, "RepoNotFound", NotFoundError),
    "revision": (404, "RevisionNotFound", NotFoundError),
    "gated": (403, "GatedRepo", NotAllowedError),
    "broken": (400, "", UnavailableError),
}


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that refuses: the model's name says how."""

    def do_GET(self) -> None:
        status, code, _ = next(answer for name, answer in ANSWERS.items() if f"/org/{name}" in self.path)
        body = json.dumps({"error": code}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.chdir(tmp_path)
        yield
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ANSWERS)
def test_what_the_hub_refuses(hub: None, name: str) -> None:
    with pytest.raises(ANSWERS[name][2], match=f"org/{name}"):
        open_checkpoint(f"org/{name}", download=True)
