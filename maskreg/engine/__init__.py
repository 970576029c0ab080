"""Engines: where blocks are worked on, on threads of this process or on the workers of a Ray cluster.

What is handed out travels. So works and tasks can be pickled, small: they hold how to open what they read (a path and
its version, a store and a digest), and the other process opens it. Secrets do not travel: each machine has its own.

A use case runs on the engine of its settings (:func:`running_on`), and its flows hand out their blocks with
:func:`ordered`, which never asks which engine that is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from maskreg import parallel
from maskreg.errors import ConfigError
from maskreg.extras import requiring

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
        self, work: Callable[[TaskT], ResultT], drawn: Iterable[tuple[Sequence[TaskT], str]]
    ) -> Generator[ResultT, None, None]:
        """Call ``work`` on every task and yield the results in the order of the tasks.

        The caller's thread draws the batches, and only as many as there is room for. An exception of a task is raised
        in its turn, once. Closing the generator ends what runs.

        Args:
            work: called in another process. A task is worked on again where the process that did so before has died,
                so it can write the same twice.
            drawn: tasks that go to another process together, and where their data lies; empty for anywhere. Batches of
                one place go to one worker while that is not behind.
        """

    def close(self) -> None:
        """End what was started; can be called twice."""


def _ray(address: str, workers: int, label: str) -> Engine:
    with requiring("--engine ray"):
        from maskreg.engine.ray import RayEngine

    return RayEngine(address, workers=workers, label=label)


THREADS = "threads"
"""The default: threads of this process."""

ENGINES: Mapping[str, Callable[[str, int, str], Engine]] = {"ray": _ray}
"""Other engines: a function of an address, a number of workers and a label. Nothing starts before it is used."""

_current: ContextVar[Engine | None] = ContextVar("maskreg_engine", default=None)


def parse_engine(text: str, origin: str) -> str:
    """An engine as the settings name it: ``threads``, ``ray`` or ``ray://HOST:PORT``."""
    name, separator, address = text.partition("://")
    if (name not in ENGINES and text != THREADS) or bool(separator) != bool(address):
        raise ConfigError(f"{origin}: {text!r} is not an engine", hint="write threads, ray or ray://HOST:PORT")
    return text


@contextmanager
def running_on(engine: str, *, workers: int = 0, label: str = "maskreg") -> Iterator[None]:
    """Hand out the blocks of what runs in the ``with`` on this engine; what it started ends with it.

    ``engine``: as :func:`parse_engine` has it. ``workers``: how many; 0 for one per CPU of the cluster. Threads are
    counted by ``jobs`` instead.
    """
    name, _, address = parse_engine(engine, "engine").partition("://")
    opened = None if name == THREADS else ENGINES[name](address, workers, label)
    token = _current.set(opened)
    try:
        yield
    finally:
        _current.reset(token)
        if opened is not None:
            opened.close()


def is_here() -> bool:
    """Whether tasks are worked on in this process, so that it can fetch what they read meanwhile."""
    return _current.get() is None


def ordered(
    work: Callable[[TaskT], ResultT],
    tasks: Iterable[TaskT],
    *,
    jobs: int,
    in_flight: int | None = None,
    size: Callable[[TaskT], int] | None = None,
    near: Callable[[TaskT], str] | None = None,
    together: int = BATCH_NUMEL,
) -> Generator[ResultT, None, None]:
    """Call ``work`` on every task on the engine at hand and yield the results in the order of the tasks.

    On threads it is :func:`maskreg.parallel.ordered`, which ``jobs`` and ``in_flight`` are for.

    Args:
        tasks: an iterable, such as a generator that reads from disk.
        size: elements of a task; small ones are handed over together. Without, each task goes alone.
        near: where a task's data lies, such as the name of a file; empty for anywhere. Tasks of different places do
            not go together.
        together: elements of tasks that go to another process together. More where results are small, and where tasks
            of one place share what costs much to read.
    """
    if (engine := _current.get()) is None:
        return parallel.ordered(work, tasks, jobs=jobs, in_flight=in_flight, size=size)
    drawn = parallel.batches(tasks, size, together, near)
    return engine.ordered(work, ((batch, next(filter(None, map(near, batch)), "") if near else "") for batch in drawn))


__all__ = ["BATCH_NUMEL", "ENGINES", "LARGE_BATCH_NUMEL", "Engine", "is_here", "ordered", "parse_engine", "running_on"]
