"""Work on threads with bounded memory: results in order (:func:`ordered`), or none at all (:func:`each`)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from maskreg.errors import UsageError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

MAX_DEFAULT_JOBS = 16
"""More threads only wait for the disk and the memory bus, and each holds blocks of about 50 MB."""


def worker_count(jobs: int | None) -> int:
    """Threads to use: ``jobs``, or as many as this process has CPUs, at most 16.

    Raises:
        UsageError: ``jobs`` is not positive.
    """
    if jobs is None:
        return min(MAX_DEFAULT_JOBS, _available_cpus())
    if jobs < 1:
        raise UsageError(f"jobs={jobs}: at least one thread is needed")
    return jobs


def ordered(
    work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], *, jobs: int, in_flight: int | None = None
) -> Generator[ResultT, None, None]:
    """Call ``work`` on every task on threads and yield the results in the order of the tasks.

    A window slides over the tasks. The caller's thread fills it and yields from its front::

        for task in tasks:                  # drawn here, so a generator of tasks needs no lock
            window.append(submit(task))
            if len(window) == in_flight:
                yield window.popleft().result()    # waits for the oldest task only

    With ``in_flight=4``, task 4 is drawn only when the result of task 0 has been taken. So at most ``in_flight``
    tasks wait, run or hold a result, and memory does not grow with their number. An exception of a task is raised
    in its turn; closing the generator cancels waiting tasks and joins running ones.

    Args:
        work: called on a worker thread.
        tasks: may be a generator that reads from disk.
        jobs: threads.
        in_flight: size of the window; default ``jobs + 2``.
    """
    room = in_flight or jobs + 2
    window: deque[Future[ResultT]] = deque()
    with ThreadPoolExecutor(jobs, thread_name_prefix="maskreg") as pool:
        try:
            for task in tasks:
                window.append(pool.submit(work, task))
                del task  # the future alone keeps the block's memory
                if len(window) >= room:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()
        finally:
            for future in window:
                future.cancel()


def each(items: Iterable[TaskT], work: Callable[[TaskT], None], jobs: int) -> None:
    """Call ``work`` on every item, ``jobs`` at a time, in no particular order.

    After an error nothing new starts; what runs is finished, then the error is raised.
    """
    if jobs == 1:
        for item in items:
            work(item)
        return
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(jobs, thread_name_prefix="maskreg") as pool:
        for item in items:
            if len(running) == jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            running.add(pool.submit(work, item))
        for future in running:
            future.result()


def _available_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
