"""What a server keeps to itself, never asks for, and forgets."""

from __future__ import annotations

import logging
import re
import socket
from pathlib import Path
from urllib.parse import quote

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from tests.service.labs import fill
from tests.service.security.conftest import Site, routes
from tests.service.serving import ADMIN, ROOT, service_in

WRONG = f"mr_{'0' * 16}_{'Z' * 43}"
URLS = [
    *("http://127.0.0.1:9/x", "https://localhost:9/x", "http://169.254.169.254/latest/meta-data"),
    *("s3://bucket/x", "hf://team/model", "file:///etc/passwd", "//localhost:9/x"),
]


@pytest.mark.parametrize("url", URLS)
def test_the_server_asks_for_no_address_that_a_client_names(
    url: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: addresses.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *host, **_: addresses.append(host))
    client = site.client(ADMIN)
    artifact = str(site.digests["opd"])
    bodies: list[tuple[str, dict[str, object]]] = [
        ("patches", {"kind": "apply", "artifact": artifact, "source": url, "output": url}),
        ("patches", {"kind": "apply", "artifact": url}),
        ("patches", {"kind": "merge", "artifacts": [url], "mask": url, "name": url}),
        ("patches", {"kind": "extract", "source": url, "target": url, "name": "team/x"}),
        ("projects", {"name": url}),
        ("projects/team/tokens", {"role": "reader", "name": url}),
    ]
    for path, body in bodies:
        assert 400 <= client.post(f"/api/v1/{path}", json=body).status_code < 500
    put = client.put(
        "/api/v1/projects/team/refs/opd/v3", json={"artifact": url}, headers={"If-None-Match": "*", "Referer": url}
    )
    assert put.status_code in (404, 422)
    for params in ({"text": url}, {"source_root": url}, {"project": url}, {"next": url}, {"cursor": url}):
        for path in ("/api/v1/artifacts", "/"):
            assert client.get(path, params=params).status_code < 500
    assert addresses == []


def test_no_secret_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = site.service.accounts.tokens.create("dora", Scope("team", Role.WRITER), ROOT)
    for token in (made.token, WRONG):
        client = site.client(token)
        client.get("/api/v1/whoami")
        client.get("/api/v1/artifacts", params={"text": token, "token": token, "cursor": token})
        client.get("/nothing", params={"code": token})
        client.post("/sign-in", data={"token": token})
        client.post("/api/v1/projects/team/tokens", json={"role": "reader", "name": token})
        client.get("/api/v1/whoami", headers={"Authorization": token, "Cookie": f"maskreg_session={token}"})
    # Not what the client of this test logs itself.
    records = [record for record in caplog.records if not record.name.startswith("http")]
    logged = "".join(f"{record.getMessage()} {vars(record)}" for record in records)
    assert "/api/v1/whoami" in logged
    for token in (made.token, WRONG):
        assert token.split("_", 2)[2] not in logged  # the secret itself can hold more of these characters


def test_no_refusal_repeats_a_token(site: Site) -> None:
    client = site.client(WRONG)
    for method, path in routes():
        answer = client.request(method, path, headers={"Authorization": f"Token {WRONG}", "Accept": "text/html"})
        assert WRONG not in answer.text + str(answer.headers), path


def test_what_was_deleted_does_not_exist_and_can_be_sent_again(site: Site) -> None:
    client, store = site.client(ADMIN), site.service.registry.store
    prefix = artifact_prefix(site.digests["rlvr"])
    before = {info.key: store.get(info.key, max_bytes=1 << 24) for info in store.list(prefix)}

    def are_there() -> set[bool]:
        return {client.head(f"/api/v1/objects/{key}").is_success for key in before}

    assert are_there() == {True}
    for key in before:
        assert client.delete(f"/api/v1/objects/{key}").status_code == 204
    assert are_there() == {False}
    assert client.get("/api/v1/objects", params={"prefix": prefix}).text.count("\n") == 1
    for method, path in (("GET", ""), ("POST", "/verify")):
        assert client.request(method, f"/api/v1/artifacts/{site.digests['rlvr']}{path}").status_code == 404
    for key, data in before.items():
        store.put(key, data)
    assert are_there() == {True}


def test_no_answer_tells_where_the_server_keeps_its_files(tmp_path: Path) -> None:
    with service_in(tmp_path / "home") as service:
        digest = fill(service.workspace, tmp_path)["opd"]
        site = Site(service, tmp_path, {"opd": digest})
        home = tmp_path / "home"
        (home / "maskreg.json").write_text("{}")
        (home / artifact_prefix(digest) / "manifest.json").write_text("damaged")
        next((home / "refs/team/rlvr").rglob("*.json")).write_text("damaged")
        client = site.client(ADMIN)
        values = {"project": "team", "name": "rlvr", "tag": "latest", "digest": str(digest), "reference": "opd:v1"}
        values["key"] = f"{artifact_prefix(digest)}manifest.json"
        failed = 0
        for method, path in routes():
            address = re.sub(r"{(\w+)[^}]*}", lambda match: quote(values.get(match[1], "team")), path)
            for accept in ("application/json", "text/html"):
                answer = client.request(method, address, headers={"Accept": accept})
                failed += answer.status_code >= 500 or "damaged" in answer.text
                for secret in (str(tmp_path), "Traceback", 'File "', "site-packages", "sqlite"):
                    assert secret not in answer.text, f"{method} {address}: {answer.text}"
        assert failed
