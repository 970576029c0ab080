"""What a service does beside its requests: threads that take a turn again and again while an application runs."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from maskreg.errors import MaskregError


class Background(ABC):
    """A thread that takes a turn, waits, and takes the next one, until it is stopped.

    A turn that fails is logged, and the next one tries again: a database that is away for a while ends no thread.

    Attributes:
        name: of the thread, and of its log below ``maskreg.service``.
        trouble: what a failed turn means to whoever reads the log.
    """

    name: ClassVar[str]
    trouble: ClassVar[str]

    def __init__(self, every_s: float) -> None:
        """Nothing happens before :meth:`during`.

        Args:
            every_s: from the end of one turn to the next, in seconds.
        """
        self._every_s = every_s
        self._stop = threading.Event()
        self._log = logging.getLogger(f"maskreg.service.{self.name}")

    @abstractmethod
    def turn(self) -> None:
        """Do once what is done again and again.

        Raises:
            MaskregError: it failed; it is logged.
        """

    @property
    def is_stopping(self) -> bool:
        """Whether a turn that is under way should end soon."""
        return self._stop.is_set()

    @asynccontextmanager
    async def during(self, _: FastAPI) -> AsyncIterator[None]:
        """Take turns for as long as an application runs; leaving waits for the turn that is under way."""
        thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(thread.join)

    def run(self) -> None:
        """Take turns until stopped; a subclass may hold something around all of them."""
        while not self.is_stopping:
            try:
                self.turn()
            except MaskregError as error:
                self._log.warning("%s: %s", self.trouble, error)
            self._stop.wait(self._every_s)
