"""The contract of engines: tasks are handed out, their results come back in order, and memory is bounded.

What is handed out travels. So works and tasks of this contract can be pickled, small: they hold how to open
what they read (a path and its version, a store and a digest), and the other process opens it. Secrets do not travel:
each machine has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

BATCH_NUMEL = 1 << 23
"""Elements of tasks that are sent to another process together: two blocks.

What comes back from a batch costs the processes of a cluster 4 ms together, a seventh of what extracting a block takes.
"""

LARGE_BATCH_NUMEL = 1 << 25
"""The same where little comes back, such as counts: as many elements as an object of a dense delta has."""

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Engine(Protocol):
    """Where blocks are worked on, elsewhere than on threads of this process."""

    def ordered(
        self,
        work: Callable[[TaskT], ResultT],
        tasks: Iterable[TaskT],
        *,
        size: Callable[[TaskT], int] | None,
        near: Callable[[TaskT], str] | None,
        together: int,
    ) -> Generator[ResultT, None, None]:
        """Call ``work`` on every task and yield the results in the order of the tasks.

        The caller's thread draws the tasks, and only as many as there is room for. An exception of a task is raised in
        its turn, once. Closing the generator ends what runs.

        Args:
            work: called in another process. A task is worked on again where the process that did so before has died,
                so it can write the same twice.
            tasks: an iterable, such as a generator that reads from disk.
            size: elements of a task; small ones are handed over together. Without, each task goes alone.
            near: where a task's data lies, such as the name of a file; empty for anywhere. Tasks of one place go to
                one worker while that is not behind, and tasks of different places do not go together.
            together: elements of tasks that go to another process together. More where results are small, and where
                tasks of one place share what costs much to read.
        """

    def close(self) -> None:
        """End what was started; can be called twice."""
