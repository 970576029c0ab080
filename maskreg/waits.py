"""Waiting that can be given up: a request to a service that hangs must not hold an interrupted command.

Python shows a signal to the main thread alone, and a request ends when its answer comes or its patience is over. So a
request runs on a thread that nobody joins, and whoever needs its answer waits for a future::

    main thread       ordered(): waits for its workers           Ctrl-C: crew.abandon()
    worker of a crew  result_of(answer): waits for the request   AbandonedError: ends, and is joined
    daemon thread     the request itself                         ends with its answer, or with the process
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.1


class AbandonedError(BaseException):
    """Nobody wants the result of this work any more. Like an interrupt, it is no error that work may handle."""


class Crew:
    """Threads that work for another one, which can tell them to stop waiting for services."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._is_abandoned = False

    def enter(self) -> None:
        """Make the current thread one of them; an initializer of a thread pool."""
        _current.crew = self

    def abandon(self) -> None:
        """Let every wait of these threads end with :class:`AbandonedError`, now and later."""
        with self._lock:
            self._is_abandoned = True
            waiting, self._waiting = self._waiting, set()
        for wait in waiting:
            _settle(wait, _abandoned)

    def check(self) -> None:
        """Raise :class:`AbandonedError` after :meth:`abandon`."""
        if self._is_abandoned:
            raise AbandonedError

    def wait(self, future: Future[T]) -> T:
        """The result of a future, but not beyond :meth:`abandon`."""
        wait: Future[T] = Future()
        with self._lock:
            self.check()
            self._waiting.add(wait)
        future.add_done_callback(lambda done: _settle(wait, done.result))
        try:
            return wait.result()
        finally:
            with self._lock:
                self._waiting.discard(wait)


class _Current(threading.local):
    crew: Crew | None = None


_current = _Current()


def result_of(future: Future[T]) -> T:
    """The result of a future; in a thread of a crew, not beyond its end."""
    crew = _current.crew
    return future.result() if crew is None or future.done() else crew.wait(future)


def interruptible(request: Callable[[], T]) -> T:
    """Make a request and wait for it, but not beyond a signal or the end of the crew."""
    if _current.crew is None and threading.current_thread() is not threading.main_thread():
        return request()
    answer: Future[T] = Future()
    # A thread of a pool would be waited for when the process ends.
    threading.Thread(target=_settle, args=(answer, request), name="maskreg-request", daemon=True).start()
    return result_of(answer)


def acquire(room: threading.Semaphore) -> None:
    """Take a place as soon as there is one, but not beyond the end of the crew."""
    while not room.acquire(timeout=_POLL_SECONDS):
        if _current.crew is not None:
            _current.crew.check()


class DaemonPool:
    """A thread pool that is never joined: neither when it is closed nor when the process ends."""

    def __init__(self, threads: int, name: str) -> None:
        """No thread is started yet.

        Args:
            threads: at most.
            name: their names begin so.
        """
        self._most, self._name, self._count = threads, name, 0
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._end = weakref.finalize(self, self._tasks.put, None)
        self._end.atexit = False

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Call ``work`` on a thread of the pool."""
        future: Future[T] = Future()
        with self._lock:
            self._tasks.put(partial(_run, future, partial(work, *args)))
            if self._count < self._most:
                self._count += 1
                name = f"{self._name}_{self._count}"
                threading.Thread(target=_serve, args=(self._tasks,), name=name, daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end after what was submitted; may be called twice."""
        self._end()


def _serve(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # an idle thread keeps nothing in memory
    tasks.put(None)  # for the next thread


def _run(future: Future[T], work: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        _settle(future, work)


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    """Give a future the result or the error of work, unless it has one already."""
    with suppress(InvalidStateError):
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


def _abandoned() -> Any:
    raise AbandonedError
