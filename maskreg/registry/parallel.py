"""Many small pieces of work at the same time, a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


def each(items: Iterable[T], work: Callable[[T], None], jobs: int) -> None:
    """Call ``work`` on every item, ``jobs`` of them at a time; the first error ends it.

    What runs when an error comes is finished, nothing new is started, and then the error is raised.
    """
    if jobs == 1:
        for item in items:
            work(item)
        return
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(jobs) as pool:
        for item in items:
            if len(running) == jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            running.add(pool.submit(work, item))
        for future in running:
            future.result()
