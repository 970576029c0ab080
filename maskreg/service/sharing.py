"""Sharing: every process tells the others, once a second, what it has let through."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from maskreg.errors import MaskregError
from maskreg.service.context import Service

SHARE_S = 1.0
"""How often, in seconds."""

_log = logging.getLogger("maskreg.service.sharing")


class Sharing:
    """A thread that shares the rate limits of a service with its other processes."""

    def __init__(self, service: Service, share_s: float = SHARE_S) -> None:
        """Name the service; nothing happens before :meth:`during`.

        Args:
            service: whose limits; without any there is nothing to do.
            share_s: how often, in seconds.
        """
        self._limits, self._buckets, self._share_s = service.limits, service.accounts.buckets, share_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharing", daemon=True)

    @asynccontextmanager
    async def during(self, _: FastAPI) -> AsyncIterator[None]:
        """Share for as long as an application runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(self._thread.join)

    def _run(self) -> None:
        while self._limits is not None and not self._stop.wait(self._share_s):
            try:
                self._limits.share(self._buckets)
            except MaskregError as error:
                _log.warning("each process limits requests for itself until the database answers: %s", error)
