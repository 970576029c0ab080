"""Telling checkpoints in buckets what is read soon, while earlier parts are worked on.

A request to object storage takes longer than the work on what it brings. So tasks are drawn some time before they are
handed out, and what they read is requested when they are drawn::

    drawn        0 1 2 3 4 5              requests for 2..5 are on their way
    handed out   0 1                      threads work on 0 and 1

Whoever goes through spans of a checkpoint does it through :func:`ahead`, wherever the checkpoint lies. A disk needs
none of this: what is read there counts nothing, and tasks go through as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from maskreg.checkpoint.base import Checkpoint, expect
from maskreg.engine import is_here
from maskreg.tensors.blocks import blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt

TaskT = TypeVar("TaskT")

AHEAD_BYTES = 96 << 20
"""Bytes that tasks wait for at most: of blocks of 8 MiB, twelve requests at a time."""


def ahead(
    tasks: Iterable[TaskT], reads: Callable[[TaskT], tuple[str, int, int] | None], *checkpoints: Checkpoint
) -> Iterator[TaskT]:
    """Tasks in their order, with what they read from buckets on its way.

    Args:
        tasks: may be a generator.
        reads: tensor and elements ``[start, stop)`` that a task reads; None for nothing.
        checkpoints: from which it reads them; one that lacks the tensor, or ends before, is read as far as it goes.
    """
    if not is_here():
        # Whoever works on the tasks reads for itself.
        yield from tasks
        return
    waiting: deque[tuple[TaskT, int]] = deque()
    total = 0
    for task in tasks:
        size = 0
        if (span := reads(task)) is not None:
            size = sum(expect(checkpoint, *span) for checkpoint in checkpoints)
        waiting.append((task, size))
        total += size
        while waiting and (not total or total > AHEAD_BYTES):
            task, size = waiting.popleft()
            total -= size
            yield task
    yield from (task for task, _ in waiting)


def read_span(checkpoint: Checkpoint, name: str, start: int, stop: int) -> npt.NDArray[Any]:
    """Elements ``[start, stop)`` of a tensor, however many, in memory of their own.

    Args:
        checkpoint: to read from.
        name: of the tensor.
        start: first element.
        stop: one past the last.

    Returns:
        Unsigned integers of the element's width.
    """
    import numpy as np

    width = checkpoint.tensors[name].item_bytes
    memory = np.empty((stop - start) * width, np.uint8)
    values: npt.NDArray[Any] = memory.view(np.dtype(f"<u{width}"))
    spans = ((start + first, start + last) for first, last in blocks_of(stop - start))
    for first, last in ahead(spans, lambda span: (name, *span), checkpoint):
        own = slice(first - start, last - start)
        piece = values[own].view(np.uint8)
        read = checkpoint.read(name, first, last, piece)
        if not np.may_share_memory(read, piece):
            values[own] = read
    return values


def blocks_ahead(name: str, numel: int, *checkpoints: Checkpoint) -> Iterator[tuple[int, int]]:
    """The blocks of a tensor in order, with what they hold on its way.

    Args:
        name: of the tensor.
        numel: its elements.
        checkpoints: from which it is read.
    """
    return ahead(blocks_of(numel), lambda span: (name, *span), *checkpoints)
