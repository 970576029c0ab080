"""Threads of this process: the default, which starts nothing and sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from maskreg import parallel
from maskreg.engine.base import BATCH_NUMEL, ResultT, TaskT


class Threads:
    """See :class:`maskreg.engine.base.Engine`."""

    is_here = True

    def ordered(
        self,
        work: Callable[[TaskT], ResultT],
        tasks: Iterable[TaskT],
        *,
        jobs: int,
        in_flight: int | None = None,
        size: Callable[[TaskT], int] | None = None,
        near: Callable[[TaskT], str] | None = None,
        together: int = BATCH_NUMEL,
    ) -> Generator[ResultT, None, None]:
        """Call ``work`` on every task on threads; see :func:`maskreg.parallel.ordered`."""
        return parallel.ordered(work, tasks, jobs=jobs, in_flight=in_flight, size=size)

    def close(self) -> None:
        """Do nothing: threads end with the generator that they work for."""
