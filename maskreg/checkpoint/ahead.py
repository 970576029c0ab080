"""Telling checkpoints in buckets what is read soon, while earlier parts are worked on.

A request to object storage takes longer than the work on what it brings. So tasks are drawn some time before they are
handed out, and what they need is requested when they are drawn::

    drawn        0 1 2 3 4 5              requests for 2..5 are on their way
    handed out   0 1                      threads work on 0 and 1

A disk needs none of this: there, tasks go through as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

from maskreg.bucket import BucketPath
from maskreg.checkpoint.base import Checkpoint, Expecting

TaskT = TypeVar("TaskT")

DEPTH = 6
"""Tasks that wait while what they need is fetched: with blocks of 8 MiB from two checkpoints about 100 MB."""


class Need(NamedTuple):
    """Elements ``[start, stop)`` of a tensor that a task reads."""

    checkpoint: Checkpoint
    name: str
    start: int
    stop: int


def ahead(
    tasks: Iterable[TaskT], needs: Callable[[TaskT], Iterable[Need]], checkpoints: Collection[Checkpoint]
) -> Iterator[TaskT]:
    """Tasks in their order, with what they read from buckets on its way.

    Args:
        tasks: may be a generator.
        needs: what a task will read.
        checkpoints: all that tasks read from.
    """
    in_buckets = {id(c): c for c in checkpoints if isinstance(c.path, BucketPath) and isinstance(c, Expecting)}
    if not in_buckets:
        yield from tasks
        return
    waiting: deque[TaskT] = deque()
    for task in tasks:
        for need in needs(task):
            if expecting := in_buckets.get(id(need.checkpoint)):
                expecting.expect(need.name, need.start, need.stop)
        waiting.append(task)
        if len(waiting) > DEPTH:
            yield waiting.popleft()
    yield from waiting
