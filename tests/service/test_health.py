"""Whether a server can serve is known in time, whatever its parts do."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from maskreg.errors import UnavailableError
from maskreg.service.health import Readiness
from maskreg.service.problems import SilentError


def asking(part: str) -> int:
    """How many threads ask a part of the server."""
    return sum(thread.name == f"readiness-{part}" for thread in threading.enumerate())


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
