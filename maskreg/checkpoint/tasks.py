"""Tasks that make an output, and pieces in which their results are written: see :mod:`maskreg.checkpoint.filling`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from maskreg.tensors.blocks import numel_of


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

    @property
    def nbytes(self) -> int:
        """Size of the result; 0 for a task that only checks."""


TaskT = TypeVar("TaskT", bound=Task)


class Part(NamedTuple):
    """A part of an object that is uploaded.

    Attributes:
        file: number of the object in the output.
        number: of the part in it, from 0 on.
    """

    file: int
    number: int


class Piece(NamedTuple, Generic[TaskT]):
    """Tasks whose results are written together.

    Attributes:
        tasks: neighbors in the output.
        part: that they make; None where each is written for itself.
        start, stop: bytes of the stream that the part has. The first and the last task may reach beyond them.
    """

    tasks: tuple[TaskT, ...]
    part: Part | None = None
    start: int = 0
    stop: int = 0

    def own(self, task: TaskT) -> slice:
        """Those bytes of a task's result that the part has."""
        return slice(max(0, self.start - task.offset), min(task.nbytes, self.stop - task.offset))

    @property
    def numel(self) -> int:
        """Elements of all tasks."""
        return sum(map(numel_of, self.tasks))


def single(tasks: Iterable[TaskT]) -> Iterator[Piece[TaskT]]:
    """Each task for itself."""
    return (Piece((task,)) for task in tasks)
