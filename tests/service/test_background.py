"""The threads of a service: how they begin, go on after a failure, and end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from fastapi import FastAPI

from maskreg.errors import UnavailableError
from maskreg.service.background import Background


class Turns(Background):
    """A thread that does what a test says, and notes when it has done so a number of times."""

    name = "turns"
    trouble = "turns are late"

    def __init__(self, act: Callable[[int], None], last: int, every_s: float = 0.0) -> None:
        super().__init__(every_s)
        self._act, self._last = act, last
        self.count = 0
        self.enough = threading.Event()

    def turn(self) -> None:
        self.count += 1
        if self.count == self._last:
            self.enough.set()
        self._act(self.count)


def run_until_enough(turns: Turns) -> None:
    """Run an application with a thread until it has taken enough turns."""

    async def run() -> None:
        async with turns.during(FastAPI()):
            assert await asyncio.to_thread(turns.enough.wait, 30)

    asyncio.run(run())


def test_a_turn_that_fails_is_logged_and_the_next_one_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    def fail_first(count: int) -> None:
        if count == 1:
            raise UnavailableError("the store does not answer")

    run_until_enough(Turns(fail_first, last=3))
    (record,) = (record for record in caplog.records if record.name == "maskreg.service.turns")
    assert record.getMessage() == "turns are late: the store does not answer"


def test_the_end_of_an_application_waits_for_the_turn_that_is_under_way() -> None:
    done = threading.Event()

    def work(_: int) -> None:
        while not turns.is_stopping:
            threading.Event().wait(0.001)
        done.set()

    turns = Turns(work, last=1)
    run_until_enough(turns)
    assert done.is_set()
    assert turns.count == 1
