"""Planning and writing a checkpoint modeled on another one of any format; each task writes its own result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy.typing as npt

from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.writer import CheckpointWriter
from maskreg.disk import filling
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import blocks_of, numel_of


class Task(Protocol):
    """Elements of a tensor, and where what becomes of them lies in the stream of all tensors' data."""

    @property
    def start(self) -> int:
        """The first element."""

    @property
    def stop(self) -> int:
        """One past the last."""

    @property
    def offset(self) -> int:
        """Of the first byte of the result."""


TaskT = TypeVar("TaskT", bound=Task)


def fill(
    writer: CheckpointWriter,
    make: Callable[[TaskT, int], npt.NDArray[Any] | None],
    tasks: Iterable[TaskT],
    *,
    jobs: int,
) -> Generator[int, None, None]:
    """Write what tasks make, on threads, and yield the bytes of each.

    ``make`` is given a task, and how far into a page of memory its result best begins.
    """

    def work(task: TaskT) -> int:
        values = make(task, writer.phase(task.offset))
        if values is None:
            return 0
        writer.write_at(task.offset, values)
        return values.nbytes

    return ordered(work, tasks, jobs=jobs, size=numel_of)


class _Block(NamedTuple):
    # Elements of a tensor, and their bytes in the stream of all tensors' data.
    name: str
    start: int
    stop: int
    offset: int
    nbytes: int


def copy_tensors(
    checkpoint: Checkpoint,
    plan: OutputPlan,
    writer: CheckpointWriter,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> None:
    """Write every tensor of a plan with the values that a checkpoint has for it, a block in memory for each thread."""
    buffers = Buffers()

    def copy(block: _Block, phase: int) -> npt.NDArray[Any]:
        # Memory that is written begins where the disk can fetch it from.
        into = buffers.bytes("copied", block.nbytes, phase)
        return checkpoint.read(block.name, block.start, block.stop, into)

    blocks = ahead(_blocks(plan), lambda block: (block.name, block.start, block.stop), checkpoint)
    with closing(fill(writer, copy, blocks, jobs=worker_count(jobs))) as sizes:
        for size in sizes:
            progress.advance(size)


def _blocks(plan: OutputPlan) -> Iterator[_Block]:
    offset = 0
    for info in plan.tensors:
        for start, stop in blocks_of(info.numel):
            size = (stop - start) * info.item_bytes
            yield _Block(info.name, start, stop, offset, size)
            offset += size


@contextmanager
def write_checkpoint(out: Path, plan: OutputPlan, *, force: bool = False) -> Iterator[CheckpointWriter]:
    """Write ``plan`` at ``out``: the output appears, whole, when the ``with`` ends, or not at all.

    ``force`` replaces files of an earlier output that are written again; others in its directory stay.
    """
    with filling(out, plan.total_bytes, what="the checkpoint"), CheckpointWriter(out, plan, force=force) as writer:
        yield writer
