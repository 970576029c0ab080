"""The follower: brings the catalog up to date with what others write into the store, without this server.

Searches of a server ask the catalog alone, whose size does not matter to them. What goes through a server is in the
catalog at once. What goes straight into a shared folder or bucket is taken in by the follower::

    every FOLLOW_SECONDS, in one process of a machine
        list the ref log, index what the catalog lacks
        write down the names that cannot be described, for the answers of all processes to say so
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import BinaryIO

from fastapi import FastAPI

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.disk import creating, replacing
from maskreg.errors import DataError
from maskreg.registry.index.results import LeftOut
from maskreg.result import plain
from maskreg.service.background import Background
from maskreg.service.context import Service

FOLLOW_SECONDS = 300.0
"""How long what went past all servers may be missing from searches."""


class Follower(Background):
    """A thread that follows the store.

    Attributes:
        left_out: names that the last look could not describe.
    """

    name = "follower"
    trouble = "the catalog is not up to date"

    def __init__(self, service: Service, lock: Path, seconds: float = FOLLOW_SECONDS) -> None:
        """Name what to follow; nothing happens before :meth:`during`.

        Args:
            service: whose registry.
            lock: a file that only one process of this machine holds.
            seconds: from the end of one look to the next.
        """
        super().__init__(seconds)
        self.left_out: tuple[LeftOut, ...] = ()
        self._service = service
        self._lock = lock
        self._shared = lock.with_name(f"{lock.name}.left-out.json")
        self._opened: BinaryIO | None = None

    def run(self) -> None:
        """Take turns, the lock file staying open: whoever gets the lock looks for all until it ends."""
        try:
            super().run()
        finally:
            if self._opened is not None:
                self._opened.close()

    def turn(self) -> None:
        """Look, or read what the process that looks has written down.

        Raises:
            MaskregError: the store or the catalog does not answer, or the folder of the lock cannot be written.
        """
        if self._opened is None:
            with creating(self._lock):
                self._lock.parent.mkdir(parents=True, exist_ok=True)
                self._opened = self._lock.open("ab")
        if _lock_now(self._opened):
            self.look()
            with replacing(self._shared, sync=False) as file:
                file.write(json.dumps([plain(name) for name in self.left_out]).encode())
        else:
            self.left_out = _read(self._shared)

    def look(self) -> None:
        """Bring the catalog up to date once.

        Raises:
            MaskregError: the store or the catalog does not answer.
        """
        registry = self._service.registry
        if registry.catalog_problem is not None:
            # It may be gone; without this a catalog that could not be opened once is never opened again.
            registry.index.close()
        self.left_out = registry.search(Query(limit=0)).left_out


def left_out(app: FastAPI) -> tuple[LeftOut, ...]:
    """Names that an application's searches lack, as far as its follower knows."""
    running: Follower | None = getattr(app.state, "follower", None)
    return running.left_out if running is not None else ()


def _read(path: Path) -> tuple[LeftOut, ...]:
    try:
        rows = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    return tuple(
        LeftOut(row["ref"], Digest(row["digest"]) if row["digest"] else None, DataError(row["reason"])) for row in rows
    )


def _lock_now(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
