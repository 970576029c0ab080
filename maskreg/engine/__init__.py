"""Engines: where blocks are worked on, on threads of this process or on the workers of a Ray cluster.

A use case runs on the engine of its settings (:func:`running_on`), and its flows hand out their blocks with
:func:`ordered`, which never asks which engine that is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from maskreg.engine.base import BATCH_NUMEL, LARGE_BATCH_NUMEL, Engine, ResultT, TaskT
from maskreg.engine.threads import Threads
from maskreg.errors import ConfigError
from maskreg.extras import requiring


def _threads(address: str, workers: int, label: str) -> Engine:
    return Threads()


def _ray(address: str, workers: int, label: str) -> Engine:
    with requiring("--engine ray"):
        from maskreg.engine.ray import RayEngine

    return RayEngine(address, workers=workers, label=label)


ENGINES: Mapping[str, Callable[[str, int, str], Engine]] = {"threads": _threads, "ray": _ray}
"""By name, what makes an engine of an address, a number of workers and a label. Nothing starts before it is used."""

ADDRESSED = ("ray",)
"""Engines that may be elsewhere: ``ray://HOST:PORT``."""

_THREADS = Threads()

_current: ContextVar[Engine] = ContextVar("maskreg_engine", default=_THREADS)


def parse_engine(text: str, origin: str) -> str:
    """An engine as the settings name it: ``threads``, ``ray`` or ``ray://HOST:PORT``.

    Args:
        text: the text.
        origin: where it was written, for messages.

    Raises:
        ConfigError: there is no such engine.
    """
    name, separator, address = text.partition("://")
    if name not in ENGINES or bool(separator) != bool(address) or (address and name not in ADDRESSED):
        raise ConfigError(f"{origin}: {text!r} is not an engine", hint="write threads, ray or ray://HOST:PORT")
    return text


@contextmanager
def running_on(engine: str, *, workers: int = 0, label: str = "maskreg") -> Iterator[None]:
    """Hand out the blocks of what runs in the ``with`` on this engine; what it started ends with it.

    Args:
        engine: as :func:`parse_engine` has it.
        workers: how many; 0 for one per CPU of the cluster. Threads are counted by ``jobs`` instead.
        label: what runs, as the cluster's own tools show it.

    Raises:
        ConfigError: there is no such engine.
    """
    name, _, address = parse_engine(engine, "engine").partition("://")
    opened = ENGINES[name](address, workers, label)
    token = _current.set(opened)
    try:
        yield
    finally:
        _current.reset(token)
        opened.close()


def is_here() -> bool:
    """Whether tasks are worked on in this process; see :attr:`maskreg.engine.base.Engine.is_here`."""
    return _current.get().is_here


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

    See :meth:`maskreg.engine.base.Engine.ordered`.
    """
    return _current.get().ordered(work, tasks, jobs=jobs, in_flight=in_flight, size=size, near=near, together=together)


__all__ = ["BATCH_NUMEL", "ENGINES", "LARGE_BATCH_NUMEL", "Engine", "is_here", "ordered", "parse_engine", "running_on"]
