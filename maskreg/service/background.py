"""What a service does beside its requests, on threads that take a turn again and again.

::

    indexer       every INDEX_SECONDS, in each process: index what went past all servers into the store
    housekeeper   chores, in one process of all servers on a database at a time:
      refresh       sign the state of the projects' tags anew, long before readers would refuse it
      verify        hash and open artifacts that were uploaded, or whose verification was requested
      tidy          delete what was uploaded and never became an artifact, or never got a name

Searches of a server ask the catalog alone. What goes through a server is in it at once; what goes straight into a
shared folder or bucket is taken in by the indexer. Every process looks for chores that are due; the database lets
one of them have each (:mod:`maskreg.service.auth.chores`), and another one does what a killed process left.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from maskreg.catalog.query import Query
from maskreg.errors import MaskregError
from maskreg.registry.searching import LeftOut
from maskreg.registry.signing import refresh_due
from maskreg.service.auth.chores import Chores
from maskreg.service.context import Service
from maskreg.service.gateway.admission import tidy
from maskreg.service.gateway.verification import verify_next


class Background(ABC):
    """A thread that takes a turn, waits, and takes the next one, until it is stopped.

    A turn that fails is logged, and the next one tries again: a database that is away for a while ends no thread.
    """

    name: ClassVar[str]
    trouble: ClassVar[str]

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._stop = threading.Event()
        self._log = logging.getLogger(f"maskreg.service.{self.name}")

    @abstractmethod
    def turn(self) -> None:
        """Do once what is done again and again."""

    @property
    def is_stopping(self) -> bool:
        """Whether a turn that is under way should end soon."""
        return self._stop.is_set()

    @asynccontextmanager
    async def during(self, _: FastAPI) -> AsyncIterator[None]:
        """Take turns for as long as an application runs; leaving waits for the turn that is under way."""
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(thread.join)

    def _run(self) -> None:
        while not self.is_stopping:
            try:
                self.turn()
            except MaskregError as error:
                self._log.warning("%s: %s", self.trouble, error)
            self._stop.wait(self._every_s)


INDEX_SECONDS = 300.0
"""The longest time that what went past all servers is missing from searches."""


class Indexer(Background):
    """A thread that indexes new names of the store; ``left_out`` are those that the last look could not describe."""

    name = "indexer"
    trouble = "the catalog is not up to date"

    def __init__(self, service: Service) -> None:
        super().__init__(INDEX_SECONDS)
        self.left_out: tuple[LeftOut, ...] = ()
        self._service = service

    def turn(self) -> None:
        """Bring the catalog up to date."""
        registry = self._service.registry
        if registry.index.problem is not None:
            # It can be gone; without this a catalog that could not be opened once is never opened again.
            registry.index.close()
        self.left_out = registry.search(Query(limit=0)).left_out


LOOK_S = 2.0
"""How often a process looks for chores that are due, in seconds."""

LEASE_S = 600.0
"""How long a process keeps a chore from others, in seconds; one that was killed keeps it no longer."""

_RETRY_S = 60.0

_log = logging.getLogger("maskreg.service.housekeeper")


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Raised where a chore is at work when the service ends."""


@dataclass(frozen=True)
class Chore:
    """Something that is done now and then.

    Attributes:
        work: does it; what it is given, it calls as often as it can, for that ends it when the service ends.
    """

    name: str
    every_s: float
    work: Callable[[Callable[[], None]], None]
    has_work: Callable[[], bool] = lambda: True


class Housekeeper(Background):
    """A thread that does chores."""

    name = "housekeeper"
    trouble = "chores are late"

    def __init__(self, chores: Chores, table: Sequence[Chore], look_s: float = LOOK_S) -> None:
        super().__init__(look_s)
        self._chores, self._table = chores, table

    def turn(self, *names: str) -> None:
        """Do every chore that is due and that no other process does; only these, where some are named."""
        for chore in self._table:
            if not self.is_stopping and (not names or chore.name in names):
                try:
                    self._do(chore)
                except MaskregError as error:
                    self._log.warning("%s: %s", chore.name, error)
                except Stopped:
                    return

    def _do(self, chore: Chore) -> None:
        if not chore.has_work() or not self._chores.claim(chore.name, LEASE_S):
            return
        next_s = min(chore.every_s, _RETRY_S)
        try:
            chore.work(self._check_running)
            next_s = chore.every_s
        except Stopped:
            next_s = 0.0
            raise
        finally:
            # After an error sooner than otherwise, and after a stop at once.
            self._chores.done(chore.name, next_s)

    def _check_running(self) -> None:
        if self.is_stopping:
            raise Stopped


def housekeeper(service: Service) -> Housekeeper:
    """The housekeeper of a service."""
    checks = service.accounts.checks

    def refresh(_: Callable[[], None]) -> None:
        for project in refresh_due(service.registry):
            _log.info("the state of %s is stated anew", project)

    def verify(beat: Callable[[], None]) -> None:
        while verify_next(service.accounts, service.registry, beat):
            beat()

    table = [
        Chore("refresh", 60.0, refresh),
        Chore("tidy", 3600.0, lambda _: tidy(service.registry)),
        Chore("verify", 0.0, verify, lambda: checks.next() is not None),
    ]
    return Housekeeper(service.accounts.chores, table)
