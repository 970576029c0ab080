"""A job's progress as server-sent events."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from maskreg.errors import TryAgainError, UnavailableError
from maskreg.service.jobs.base import Job, JobQueue

EVENT_STREAM = "text/event-stream"
"""The media type of server-sent events."""

POLL_S = 0.5
"""How often the database is asked, in seconds."""

KEEP_ALIVE_S = 15.0
"""After how long without an event a comment is sent, so that no proxy takes the connection for dead, in seconds."""

STREAM_S = 600.0
"""How long one stream lasts, in seconds; a client that reconnects shows its token again."""


MOST_STREAMS = 200
"""How many streams one process keeps open."""

_streams: set[object] = set()


def check_streams() -> None:
    """Check that one more stream may be opened.

    Raises:
        TryAgainError: as many are open as may be.
    """
    if len(_streams) >= MOST_STREAMS:
        raise TryAgainError("too many clients follow jobs here", hint="ask for the job itself now and then")


async def events(queue: JobQueue, id: str, *, after: int = 0) -> AsyncIterator[str]:
    """The job whenever it has changed, until it ends.

    ::

        id: 7
        event: job
        data: {"id": "4be0...", "state": "running", "progress": {"phase": "apply", "done": 65536, ...}, ...}

        id: 9
        event: end
        data: {"id": "4be0...", "state": "done", "result": {...}, ...}

    Args:
        queue: where the job is.
        id: of the job.
        after: the last revision that the client has seen.
    """
    stream = object()
    _streams.add(stream)
    try:
        async for event in _changes(queue, id, after):
            yield event
    finally:
        _streams.discard(stream)


async def _changes(queue: JobQueue, id: str, after: int) -> AsyncIterator[str]:
    began = spoke = time.monotonic()
    while time.monotonic() - began < STREAM_S and not _server_ends():
        try:
            job = await run_in_threadpool(queue.get, id)
        except (TryAgainError, UnavailableError):
            # The database is busy or restarts; the stream says nothing meanwhile.
            await asyncio.sleep(POLL_S)
            continue
        # A client that has seen the end and connects again gets it once more: otherwise it would wait for ever.
        if job.revision > after or job.state.is_final:
            yield _event(job)
            after, spoke = job.revision, time.monotonic()
        if job.state.is_final:
            return
        if time.monotonic() - spoke >= KEEP_ALIVE_S:
            yield ": keep-alive\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(POLL_S)


def _server_ends() -> bool:
    # uvicorn waits for streams before it tells the application anything; what handles its signals is the server itself.
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))


def _event(job: Job) -> str:
    kind = "end" if job.state.is_final else "job"
    return f"id: {job.revision}\nevent: {kind}\ndata: {json.dumps(job.to_json())}\n\n"
