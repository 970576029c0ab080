"""Filling an output with what tasks make, each result at its place, wherever the tasks are worked on.

On a disk each result is written where it is made. In a bucket, results that are made in another process are sent from
there too, some at a time: those of neighboring tasks make one part of an upload::

    tasks      0    1    2    3    4          offsets grow, and none reaches into the next file
    parts      |      0      |     1    |     of one size, but for the last of a file
    pieces     [0   1    2]  [2   3    4]     2 is made twice, and each part takes its bytes of it
    worker     makes 2, 3 and 4, and sends part 1 of its object
    driver     hears what the service calls that part, and completes the object at the end

A part is the same whoever sends it, so it may be sent again when a worker has died. Not all services take parts of
different sizes, so parts do not end where tasks do. They are large, so that little is made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from maskreg.checkpoint.base import CheckpointWriter
from maskreg.checkpoint.tasks import Part, Piece, TaskT
from maskreg.engine import LARGE_BATCH_NUMEL, ordered

if TYPE_CHECKING:
    import numpy.typing as npt


NoteT = TypeVar("NoteT")

Make: TypeAlias = "Callable[[TaskT, int], tuple[npt.NDArray[Any] | None, NoteT]]"
"""Makes the result of a task in memory that best begins so far into a page, and a note for whoever handed it out."""


def fill(
    writer: CheckpointWriter,
    make: Make[TaskT, NoteT],
    tasks: Iterable[TaskT],
    *,
    jobs: int,
    near: Callable[[TaskT], str],
) -> Generator[tuple[int, NoteT], None, None]:
    """Write what tasks make, on the engine at hand.

    Args:
        writer: of the output, entered.
        make: makes the result of a task; called on any thread, or in another process.
        tasks: in the order of the output.
        jobs: threads.
        near: where a task's data lies.

    Yields:
        Bytes of each result, and the note, in the order of the pieces; twice for a result that two parts share.
    """
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
