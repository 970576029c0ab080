"""Engines: where blocks are worked on, on threads of this process or on the workers of a Ray cluster.

A use case runs on the engine of its settings (:func:`running_on`), and its flows hand out their blocks with
:func:`ordered`, which never asks which engine that is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from maskreg import parallel
from maskreg.engine.base import BATCH_NUMEL, LARGE_BATCH_NUMEL, Engine, ResultT, TaskT
from maskreg.errors import ConfigError
from maskreg.extras import requiring


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

    On threads it is :func:`maskreg.parallel.ordered`, which ``jobs`` and ``in_flight`` are for; other engines are told
    the rest, see :meth:`maskreg.engine.base.Engine.ordered`.
    """
    if (engine := _current.get()) is None:
        return parallel.ordered(work, tasks, jobs=jobs, in_flight=in_flight, size=size)
    return engine.ordered(work, tasks, size=size, near=near, together=together)


__all__ = ["BATCH_NUMEL", "ENGINES", "LARGE_BATCH_NUMEL", "Engine", "is_here", "ordered", "parse_engine", "running_on"]
