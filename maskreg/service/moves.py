"""Requests that wait for a tag to move: no thread waits with them, and one task of a process looks for all of them.

::

    request    reads the tag; it is what the client has     -> waits, on the event loop
    task       every LOOK_S, while a request waits          reads the numbers of all these tags in the catalog, at once
                 a number has grown                         reads that tag once, and ends all its requests

The processes of a server share the catalog, so it does not matter which of them a tag is moved through. What goes
straight into a shared folder or bucket is seen when the catalog follows, or when the wait is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from maskreg.errors import MaskregError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.service.middleware import STOPPING
from maskreg.store.reflog import RefEntry

LOOK_S = 0.1
"""How often a process looks for tags that have moved, in seconds."""

_Move = asyncio.Future[RefEntry | None]


class Moves:
    """The requests of a process that wait; used on its event loop alone."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[_Move, tuple[Request, RefEntry]] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    async def after(self, head: RefEntry, request: Request, seconds: float) -> RefEntry:
        """The latest entry of a tag, once it is another one than this, the client has gone, or the time is over."""
        move: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        self._waiting[move] = request, head
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            await asyncio.wait([gone, move], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            del self._waiting[move]
        if not move.done() and not gone.done():
            return await run_in_threadpool(self._registry.head, head.ref) or head
        return (move.result() if move.done() else None) or head

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_S)
            tags = {head.ref for _, head in self._waiting.values()}
            numbers = await run_in_threadpool(self._numbers, tags)
            for ref in tags:
                here = {move: head.n for move, (_, head) in self._waiting.items() if head.ref == ref}
                if here and numbers.get(ref, 0) > min(here.values()):
                    await self._end(ref, here)
            for move, (request, _) in self._waiting.items():
                if STOPPING in request.scope and not move.done():
                    move.set_result(None)

    async def _end(self, ref: Ref, waiting: dict[_Move, int]) -> None:
        try:
            head = await run_in_threadpool(self._registry.head, ref)
        except MaskregError as error:
            for move in waiting:
                if not move.done():
                    move.set_exception(error)
            return
        for move, n in waiting.items():
            if head is not None and head.n > n and not move.done():
                move.set_result(head)

    def _numbers(self, refs: set[Ref]) -> dict[Ref, int]:
        return self._registry.index.use(lambda catalog: catalog.numbers(refs)) or {}


async def _gone(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
