"""Blocks in parallel, results in order, and never more than a few of them in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from maskreg.errors import UsageError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

MAX_DEFAULT_JOBS = 16
"""More threads than this wait for the disk and memory bus, and each holds blocks of some 50 MB."""


def worker_count(jobs: int | None) -> int:
    """Threads to use: ``jobs``, or what this machine lets the process have.

    Raises:
        UsageError: ``jobs`` is not positive.
    """
    if jobs is None:
        return min(MAX_DEFAULT_JOBS, _available_cpus())
    if jobs < 1:
        raise UsageError(f"jobs={jobs}: at least one thread is needed")
    return jobs


def ordered(
    run: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], *, jobs: int, in_flight: int | None = None
) -> Generator[ResultT, None, None]:
    """Run tasks on threads and yield their results in the order of the tasks.

    ``tasks`` is drawn in the caller's thread, and only when there is room: at most ``in_flight`` tasks are
    waiting, running or finished but not yet taken. What a task raises is raised here, in order. Closing the
    generator waits for the tasks that run.

    Args:
        run: called on a worker thread.
        tasks: may be a generator that reads; it is not drawn ahead of ``in_flight``.
        jobs: threads.
        in_flight: default ``jobs + 2``.
    """
    room = in_flight or jobs + 2
    pending: deque[Future[ResultT]] = deque()
    with ThreadPoolExecutor(jobs, thread_name_prefix="maskreg") as pool:
        try:
            for task in tasks:
                pending.append(pool.submit(run, task))
                del task  # the future alone keeps the block's memory
                if len(pending) >= room:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _available_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
