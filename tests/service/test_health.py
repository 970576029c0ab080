"""Whether a server can serve is known in time, whatever its parts do."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from maskreg.errors import UnavailableError
from maskreg.service.app import create_app
from maskreg.service.health import Readiness
from maskreg.service.problems import SilentError
from tests.buckets import log_in
from tests.servers import S3Server
from tests.service.serving import listening, service_in_bucket

POLLS = 60
"""More than there are threads for requests."""


def asking(part: str) -> int:
    """How many threads ask a part of the server."""
    return sum(thread.name == f"readiness-{part}" for thread in threading.enumerate())


def test_a_server_whose_bucket_hangs_is_not_ready_and_says_so_at_every_poll(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(s3_server, monkeypatch)
    with (
        service_in_bucket(s3_server, tmp_path) as service,
        listening(create_app(service)) as url,
        httpx2.Client(base_url=url, timeout=120) as client,
        ThreadPoolExecutor(POLLS) as pool,
    ):
        assert client.get("/readyz").status_code == 200
        s3_server.stop()
        try:
            answers = list(pool.map(lambda _: client.get("/readyz"), range(POLLS)))
            assert asking("store") == 1
        finally:
            s3_server.cont()
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["title"] for answer in answers} == {"no answer within 4 seconds from: store"}
        assert answers[0].headers["Retry-After"] == "1"
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)
    assert asking("store") == 0


def test_every_part_that_is_silent_is_named_and_asked_once() -> None:
    goes_on, asked = threading.Event(), []

    def hangs() -> None:
        asked.append(threading.current_thread().name)
        goes_on.wait()

    readiness = Readiness({"store": hangs, "catalog": lambda: None, "accounts": hangs}, patience_s=0.02)
    for _ in range(5):
        with pytest.raises(SilentError, match="from: accounts, store"):
            asyncio.run(readiness.check())
    assert sorted(asked) == ["readiness-accounts", "readiness-store"]
    goes_on.set()
    while asking("store") or asking("accounts"):
        time.sleep(0.001)
    asyncio.run(Readiness({"store": hangs}).check())


def test_a_part_that_cannot_serve_says_why_though_another_hangs() -> None:
    goes_on = threading.Event()

    def gone() -> None:
        raise UnavailableError("the database does not answer")

    readiness = Readiness({"store": goes_on.wait, "accounts": gone}, patience_s=60)
    with pytest.raises(UnavailableError, match="the database does not answer"):
        asyncio.run(readiness.check())
    goes_on.set()
