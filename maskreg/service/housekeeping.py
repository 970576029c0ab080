"""Housekeeping: what a service does by itself, in one process of all servers on a database at a time.

::

    refresh      state how the tags of the projects stand that this service signs, long before readers would refuse them
    verify       hash and open artifacts that were uploaded, or whose verification somebody requested
    tidy         delete what was uploaded and never became an artifact, or never got a name

Every process looks for chores that are due; the database lets one of them have each
(:mod:`maskreg.service.auth.chores`). What a killed process was about to do is done by another one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maskreg.errors import MaskregError
from maskreg.registry.signing import refresh_due
from maskreg.service.auth.chores import Chores
from maskreg.service.background import Background
from maskreg.service.context import Service
from maskreg.service.gateway.admission import tidy
from maskreg.service.gateway.verification import verify_next

LOOK_S = 2.0
"""How often a process looks for chores that are due, in seconds."""

LEASE_S = 60.0
"""How long a process may be silent before another one does its chore, in seconds."""

_BEAT_S = 10.0

_log = logging.getLogger("maskreg.service.housekeeper")


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Raised where a chore is at work when the service ends."""


@dataclass(frozen=True)
class Chore:
    """Something that is done now and then.

    Attributes:
        name: of the chore, the same on all servers.
        every_s: from the end of one turn to the next, in seconds.
        work: does it; what it is given, it calls as often as it can, for that keeps the chore or ends it.
        has_work: whether there is anything to do; asked before anything is claimed.
        deletes: it deletes what is old by the clock; see :meth:`maskreg.service.auth.chores.Chores.claim`.
    """

    name: str
    every_s: float
    work: Callable[[Callable[[], None]], None]
    has_work: Callable[[], bool] = lambda: True
    deletes: bool = False


class Housekeeper(Background):
    """A thread that does chores."""

    name = "housekeeper"
    trouble = "chores are late"

    def __init__(self, chores: Chores, table: Sequence[Chore], look_s: float = LOOK_S) -> None:
        """Name the chores; nothing happens before :meth:`during` or :meth:`look`.

        Args:
            chores: say whose turn it is.
            table: what there is to do.
            look_s: how often to look, in seconds.
        """
        super().__init__(look_s)
        self._chores, self._table = chores, table

    def turn(self) -> None:
        """Do every chore that is due and that no other process does."""
        self.look()

    def look(self, *names: str) -> None:
        """Do every chore that is due and that no other process does.

        Args:
            names: of the chores; all when left out.
        """
        for chore in self._table:
            if not self.is_stopping and (not names or chore.name in names):
                try:
                    self._do(chore)
                except MaskregError as error:
                    self._log.warning("%s: %s", chore.name, error)
                except Stopped:
                    return

    def _do(self, chore: Chore) -> None:
        if not self._chores.is_due(chore.name) or not chore.has_work():
            return
        if not self._chores.claim(chore.name, LEASE_S, deletes=chore.deletes):
            return
        next_s = min(chore.every_s, LEASE_S)
        try:
            chore.work(self._beat(chore.name))
            next_s = chore.every_s
        except Stopped:
            next_s = 0.0
            raise
        finally:
            # After an error sooner than otherwise, and after a stop at once.
            self._chores.done(chore.name, next_s)

    def _beat(self, name: str) -> Callable[[], None]:
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if self.is_stopping:
                raise Stopped
            if time.monotonic() - last > _BEAT_S:
                last = time.monotonic()
                self._chores.renew(name, LEASE_S)

        return beat


def housekeeper(service: Service, look_s: float = LOOK_S) -> Housekeeper:
    """Who does the chores of a service."""
    checks = service.accounts.checks

    def refresh(_: Callable[[], None]) -> None:
        for project in refresh_due(service.registry):
            _log.info("the state of %s is stated anew", project)

    def verify(beat: Callable[[], None]) -> None:
        while verify_next(service.accounts, service.registry, beat):
            beat()

    table = [
        Chore("refresh", 60.0, refresh),
        Chore("tidy", 3600.0, lambda _: tidy(service.registry), deletes=True),
        Chore("verify", 0.0, verify, lambda: checks.next() is not None),
    ]
    return Housekeeper(service.accounts.chores, table, look_s)
