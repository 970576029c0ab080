"""Faults of a server's own parts: what clients hear, what the log says, and that the process lives."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from maskreg.errors import ConflictError, UnavailableError
from maskreg.service import observing
from maskreg.service.app import create_app
from maskreg.service.auth.database import upgrade_server
from maskreg.service.context import Service
from maskreg.service.health import Readiness
from maskreg.service.problems import SilentError, problem_of, without_paths
from maskreg.settings import Settings
from maskreg.workspace.workspace import Workspace
from tests.buckets import log_in, new_store
from tests.servers import Postgres, S3Server
from tests.service.serving import ADMIN, accounts_in, headers, listening, service_in, service_in_bucket, service_on

THREADS = 40
"""How many requests FastAPI works on at the same time, outside of its event loop."""


@contextmanager
def closed_to_all(postgres: Postgres, url: str) -> Iterator[None]:
    name = url.rpartition("/")[2]
    admin = f"host=127.0.0.1 port={postgres.port} user=maskreg dbname=postgres"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        yield
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


def test_clients_hear_that_the_database_is_gone_and_not_where_it_was(
    tmp_path: Path, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.new_database()
    upgrade_server(url)
    workspace = Workspace(Settings.load(home=str(tmp_path)))
    service = Service(workspace, None, accounts_in(url), ("*",))
    with closing(service), TestClient(create_app(service)) as client:
        assert client.get("/api/v1/whoami", headers=headers(ADMIN)).status_code == 200
        with closed_to_all(postgres, url):
            for path, accept in (("/api/v1/whoami", "*/*"), ("/readyz", "*/*"), ("/", "text/html")):
                answer = client.get(path, headers={**headers(ADMIN), "Accept": accept})
                assert answer.status_code == 503, answer.text
                assert not {"postgres", "127.0.0.1", str(postgres.port)} & set(answer.text.replace("/", " ").split())
            assert f"127.0.0.1:{postgres.port}" in caplog.text
            assert client.get("/livez").status_code == 200
        assert client.get("/api/v1/whoami", headers=headers(ADMIN)).status_code == 200


def test_a_server_whose_bucket_refuses_it_does_not_tell_its_clients_that_they_may_not(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(s3_server, monkeypatch)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with new_store(s3_server) as store, closing(service_on(store, tmp_path)) as service:
        answer = TestClient(create_app(service)).get("/api/v1/objects/maskreg.json", headers=headers(ADMIN))
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "SignatureDoesNotMatch" in caplog.text


def test_a_process_whose_every_thread_waits_for_a_bucket_that_hangs_is_alive_and_not_ready(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(s3_server, monkeypatch)
    with (
        service_in_bucket(s3_server, tmp_path) as service,
        listening(create_app(service)) as url,
        httpx2.Client(base_url=url, headers=headers(ADMIN), timeout=120) as client,
        ThreadPoolExecutor(2 * THREADS) as pool,
    ):
        assert client.get("/readyz").status_code == 200
        s3_server.stop()
        try:
            polls = list(pool.map(lambda _: client.get("/readyz"), range(THREADS // 2)))
            assert {poll.status_code for poll in polls} == {503}
            assert polls[0].json()["title"].endswith("from: store") and polls[0].headers["Retry-After"] == "1"
            waiting = [pool.submit(client.get, "/api/v1/objects/maskreg.json") for _ in range(THREADS + 5)]
            while next(iter(observing.IN_FLIGHT.collect())).samples[0].value < THREADS:
                time.sleep(0.01)
            assert [client.get("/livez").status_code for _ in range(20)] == [200] * 20
            assert not any(request.done() for request in waiting)
        finally:
            s3_server.cont()
        assert {request.result().status_code for request in waiting} == {200}
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)


def test_what_is_not_recorded_is_no_success(tmp_path: Path) -> None:
    service = service_in(tmp_path)
    client = TestClient(create_app(service))
    with closing(service), closing(sqlite3.connect(tmp_path / "service.db")) as database:

        def remove() -> Response:
            return client.delete("/api/v1/objects/probe/some", headers=headers(ADMIN))

        assert remove().status_code == 204
        assert [event.subject for event in service.accounts.audit()][:1] == ["probe/some"]
        database.execute("CREATE TRIGGER full BEFORE INSERT ON service_audit BEGIN SELECT RAISE(ABORT, 'full'); END")
        answer = remove()
        assert (answer.status_code, answer.json()["code"]) == (422, "DIGEST_MISMATCH")
        database.execute("DROP TRIGGER full")
        assert remove().status_code == 204


def test_readers_are_served_where_the_use_of_their_token_cannot_be_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = service_in(tmp_path)
    client = TestClient(create_app(service))
    with closing(service), closing(sqlite3.connect(tmp_path / "service.db")) as database:
        database.execute("CREATE TRIGGER full BEFORE UPDATE ON service_tokens BEGIN SELECT RAISE(ABORT, 'full'); END")
        assert client.get("/api/v1/artifacts", headers=headers(ADMIN)).status_code == 200
    assert "maskreg.service.auth" in {record.name for record in caplog.records}


def test_every_part_that_is_silent_is_named_and_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, asked = threading.Event(), []

    def hangs() -> None:
        asked.append(threading.current_thread().name)
        goes_on.wait()

    readiness = Readiness({"store": hangs, "catalog": lambda: None, "accounts": hangs})
    monkeypatch.setattr("maskreg.service.health.PATIENCE_S", 0.02)
    for _ in range(5):
        with pytest.raises(SilentError, match=": accounts, store"):
            asyncio.run(readiness.check())
    assert sorted(asked) == ["readiness-accounts", "readiness-store"]
    goes_on.set()
    asyncio.run(Readiness({"store": hangs}).check())


def test_a_part_that_cannot_serve_says_why_though_another_hangs() -> None:
    goes_on = threading.Event()

    def gone() -> None:
        raise UnavailableError("the database does not answer")

    readiness = Readiness({"store": goes_on.wait, "accounts": gone})
    with pytest.raises(UnavailableError, check=lambda error: not isinstance(error, SilentError)):
        asyncio.run(readiness.check())
    goes_on.set()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/srv/models/qwen3-8b: tensor w: leaf 3 differs", "qwen3-8b: tensor w: leaf 3 differs"),
        ("there is no team/opd in local (file:///srv/my-home)", "there is no team/opd in local (my-home)"),
        ("'/srv/a/b' and \"/srv/c/\", then /d", "'b' and \"c\", then d"),
        ("maskreg apply team/opd:v1 --source ./x", "maskreg apply team/opd:v1 --source ./x"),
        ("see https://example.org/docs/serve", "see https://example.org/docs/serve"),
        ("s3://bucket/prefix/key holds 3/4", "s3://bucket/prefix/key holds 3/4"),
        ("postgresql+psycopg://a@db:5432/x: no lock", "the database: no lock"),
        ("postgresql://[::1]/x?sslmode=require.", "the database."),
    ],
)
def test_of_an_absolute_path_only_the_last_name_is_shown(text: str, left: str) -> None:
    assert without_paths(text) == left


def test_a_hint_names_no_path_and_a_request_is_beside_it() -> None:
    body = json.loads(bytes(problem_of(ConflictError("a is there", hint="see /srv/models/x", project="team")).body))
    assert (body["hint"], body["see"]) == ("see x", "GET /api/v1/artifacts?project=team lists them")
