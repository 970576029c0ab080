"""Planning and writing a checkpoint modeled on another one, whatever their formats.

Tasks make the output, each result at its place, wherever the task runs. On a disk each result is written where it is
made. In a bucket, results that are made in another process are sent from there too, some at a time: the
results of neighboring tasks make one part of an upload::

    tasks      0    1    2    3    4          offsets grow, and none reaches into the next file
    parts      |      0      |     1    |     of one size, but for the last of a file
    pieces     [0   1    2]  [2   3    4]     2 is made twice, and each part takes its bytes of it
    worker     makes 2, 3 and 4, and sends part 1 of its object
    driver     hears what the service calls that part, and completes the object at the end

A part is the same on every worker, so it can be sent again when a worker has died. Not all services take parts of
different sizes, so parts do not end where tasks do. They are large, so that little is made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from maskreg.bucket import Location
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.writer import CheckpointWriter, Part, Piece, TaskT
from maskreg.disk import filling
from maskreg.engine import LARGE_BATCH_NUMEL, ordered
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt

NoteT = TypeVar("NoteT")

Make: TypeAlias = "Callable[[TaskT, int], tuple[npt.NDArray[Any] | None, NoteT]]"
"""Makes the result of a task in memory that best begins so far into a page, and a note for the caller."""


def fill(
    writer: CheckpointWriter,
    make: Make[TaskT, NoteT],
    tasks: Iterable[TaskT],
    *,
    jobs: int,
    near: Callable[[TaskT], str],
) -> Generator[tuple[int, NoteT], None, None]:
    """Write what tasks make, on the engine at hand."""
    work = _Filling(make, writer)
    pieces = writer.pieces(tasks)
    with closing(
        ordered(
            work,
            pieces,
            jobs=jobs,
            size=lambda piece: piece.numel,
            near=lambda piece: near(piece.tasks[0]),
            together=LARGE_BATCH_NUMEL,
        )
    ) as results:
        for part, receipt, done in results:
            if part is not None:
                writer.sent(part, receipt)
            for offset, size, note in done:
                writer.wrote(offset, size)
                yield size, note


@dataclass(frozen=True)
class _Filling(Generic[TaskT, NoteT]):
    make: Make[TaskT, NoteT]
    writer: CheckpointWriter

    def __call__(self, piece: Piece[TaskT]) -> tuple[Part | None, str, list[tuple[int, int, NoteT]]]:
        done: list[tuple[int, int, NoteT]] = []
        gathered = bytearray()
        for task in piece.tasks:
            values, note = self.make(task, self.writer.phase(task.offset))
            offset, size = task.offset, 0 if values is None else values.nbytes
            if values is not None and size:
                if piece.part is None:
                    self.writer.put_at(offset, values)
                else:
                    own = piece.own(task)
                    gathered += values.data.cast("B")[own]
                    offset, size = offset + own.start, own.stop - own.start
            done.append((offset, size, note))
        receipt = "" if piece.part is None else self.writer.send(piece.part, gathered)
        return piece.part, receipt, done


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
    copy = _Copying(checkpoint)
    blocks = ahead(_blocks(plan), lambda block: (block.name, block.start, block.stop), checkpoint)
    with closing(fill(writer, copy, blocks, jobs=worker_count(jobs), near=copy.near)) as results:
        for size, counted in results:
            checkpoint.count(counted)
            progress.advance(size)


@dataclass(frozen=True)
class _Copying:
    """Reads a block of a checkpoint, and returns with it what the checkpoint has counted."""

    checkpoint: Checkpoint
    _buffers: Buffers = field(default_factory=Buffers)

    def __call__(self, block: _Block, phase: int) -> tuple[npt.NDArray[Any], Any]:
        # Memory that is written begins where the disk can fetch it from.
        into = self._buffers.bytes("copied", block.nbytes, phase)
        values = self.checkpoint.read(block.name, block.start, block.stop, into)
        return values, self.checkpoint.counted(block.name, block.start, block.stop)

    def near(self, block: _Block) -> str:
        """The file that holds a block."""
        return self.checkpoint.place_of(block.name, block.start)


def _blocks(plan: OutputPlan) -> Iterator[_Block]:
    offset = 0
    for info in plan.tensors:
        for start, stop in blocks_of(info.numel):
            size = (stop - start) * info.item_bytes
            yield _Block(info.name, start, stop, offset, size)
            offset += size


@contextmanager
def write_checkpoint(out: Location, plan: OutputPlan, *, force: bool = False) -> Iterator[CheckpointWriter]:
    """Write ``plan`` at ``out``: the output appears, whole, when the ``with`` ends, or not at all.

    ``force`` replaces files of an earlier output that are written again; others in its directory stay.
    """
    # A bucket is never full.
    room = filling(out, plan.total_bytes, what="the checkpoint") if isinstance(out, Path) else nullcontext()
    with room, CheckpointWriter(out, plan, force=force) as writer:
        yield writer
