"""Work on threads with bounded memory: results in order (:func:`ordered`), or none at all (:func:`each`).

A task takes its memory from :class:`Buffers`, which every worker has of its own and uses again.

Waiting can be given up, because a request to a service that hangs must not hold an interrupted command. Python shows a
signal to the main thread alone, and a request ends when its answer comes or its patience is over. So a request runs on
a daemon thread that is never joined, and the worker that needs its answer waits for a future::

    main thread       ordered(): waits for its workers           Ctrl-C: crew.abandon()
    worker of a crew  result_of(answer): waits for the request   AbandonedError: ends, and is joined
    daemon thread     the request itself                         ends with its answer, or with the process
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from maskreg.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def available_cpus(groups: Path = _GROUPS, root: Path = _ROOT) -> int:
    """CPUs that this process can use, at least 1.

    A container on a machine of 64 CPUs can run on all of them and still get the time of two: ``docker run --cpus 2``
    sets no affinity mask but a quota. More threads than that only wait for each other.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([cpus, *_quotas(groups, root)])))


def _quotas(groups: Path, root: Path) -> Iterator[float]:
    """The quotas of the process's control group, and of the groups around it, in CPUs.

    ``0::/user/job`` has root/user/job/cpu.max: "200000 100000" is 2 CPUs, and "max 100000" no quota.
    """
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            # In a container the path can be the host's; then the mount itself is the group.
            group = root / path.lstrip("/")
            for folder in (group, *group.parents) if not controllers else ():
                if folder.is_relative_to(root):
                    with suppress(OSError, ValueError, ZeroDivisionError):
                        quota, _, period = (folder / "cpu.max").read_text().strip().partition(" ")
                        yield math.inf if quota == "max" else int(quota) / int(period)


def is_first() -> bool:
    """Whether this process is the only one, or the first of those that torchrun or Accelerate has started."""
    return os.environ.get("RANK", "0") == "0"


T = TypeVar("T")


class AbandonedError(BaseException):
    """The result of this work is not wanted any more. Like an interrupt, it is not an error that work can handle."""


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
        for future in waiting:
            with suppress(InvalidStateError):
                future.set_exception(AbandonedError())

    def wait(self, future: Future[T]) -> T:
        """The result of a future, but not beyond :meth:`abandon`."""
        wait: Future[T] = Future()
        with self._lock:
            if self._is_abandoned:
                raise AbandonedError
            self._waiting.add(wait)
        future.add_done_callback(partial(_copy, wait))
        try:
            return wait.result()
        finally:
            with self._lock:
                self._waiting.discard(wait)
            del future, wait  # as in result_of


class _Current(threading.local):
    crew: Crew | None = None


_current = _Current()


def result_of(future: Future[T]) -> T:
    """The result of a future; in a thread of a crew, not beyond its end."""
    crew = _current.crew
    try:
        return future.result() if crew is None or future.done() else crew.wait(future)
    finally:
        # An error holds the frames that it went through, so a future that holds the error must not stay in one of
        # them: such a cycle keeps blocks in memory, and CPython can crash where its collector frees their views.
        del future


def interruptible(request: Callable[[], T]) -> T:
    """Make a request and wait for it, but not beyond a signal or the end of the crew."""
    if _current.crew is None and threading.current_thread() is not threading.main_thread():
        return request()
    answer: Future[T] = Future()
    # A thread of a pool would be waited for when the process ends.
    threading.Thread(target=_settle, args=(answer, request), name="maskreg-request", daemon=True).start()
    return result_of(answer)


class DaemonPool:
    """A thread pool that is never joined: neither when it is closed nor when the process ends."""

    def __init__(self, threads: int, name: str) -> None:
        """No thread is started yet. ``threads``: at most."""
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
        """Let the threads end after what was submitted; can be called twice."""
        self._end()


def _serve(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # an idle thread keeps nothing in memory
    tasks.put(None)  # for the next thread


def _run(future: Future[T], work: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        _settle(future, work)


def _copy(future: Future[T], done: Future[T]) -> None:
    _settle(future, done.result)


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    """Give a future the result or the error of work, unless it has one already."""
    with suppress(InvalidStateError):
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
            del future  # as in result_of
        else:
            future.set_result(result)


PAGE = mmap.PAGESIZE
"""Bytes of a page of memory."""

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

BATCH_NUMEL = 1 << 18
"""Elements that small tasks which are handed to a thread together can have: a sixteenth of a block."""

BATCH_TASKS = 256
"""Small tasks that are handed over together at most."""

MAX_DEFAULT_JOBS = 16
"""More threads only wait for the disk and the memory bus, and each holds blocks of about 50 MB."""


def worker_count(jobs: int | None) -> int:
    """Threads to use: ``jobs``, or as many as this process can use CPUs, at most 16."""
    if jobs is None:
        return min(MAX_DEFAULT_JOBS, available_cpus())
    if jobs < 1:
        raise UsageError(f"jobs={jobs}: at least one thread is needed")
    return jobs


def system_memory(size: int, *, huge: bool = False) -> npt.NDArray[np.uint8]:
    """uint8 ``[size]`` of zeros, from the beginning of a page on; of huge pages if that is said and can be.

    When it is dropped, the system gets it back, where malloc would keep it.
    """
    import numpy as np

    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # where the system has none
        if huge:
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8, size)


class Buffers(threading.local):
    """Memory for the work of one thread; each thread that uses the object has its own.

    The system clears every page that is touched for the first time, at a tenth of the speed at which memory is
    written. So a worker keeps what a task needed and gives it to the next::

        task 1    bytes("source", 8 MiB)    new memory
        task 2    bytes("source", 5 MiB)    its first 5 MiB
        task 3    bytes("source", 9 MiB)    new memory, which replaces it

    Memory begins at a page, or as far behind the beginning of one as the task asks: its *phase*. Pages are huge, which
    the system writes to a disk in a third less CPU time; not so where much of the memory stays untouched.
    """

    def __init__(self, *, huge: bool = True) -> None:
        self._huge = huge
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def bytes(self, use: str, size: int, phase: int = 0) -> npt.NDArray[np.uint8]:
        """uint8 ``[size]`` of any content, which the thread's next call with the same ``use`` gives out again."""
        memory = self._memory.get(use)
        if memory is None or memory.size < size + PAGE:
            # Twice as much at least, so that growing tensors do not replace it each time.
            room = max(size + PAGE, 0 if memory is None else 2 * memory.size)
            self._memory[use] = memory = system_memory(room, huge=self._huge)
        return memory[phase : phase + size]

    def array(self, use: str, size: int, dtype: npt.DTypeLike, phase: int = 0) -> npt.NDArray[Any]:
        """The same as ``[size]`` of another dtype."""
        import numpy as np

        kind = np.dtype(dtype)
        return self.bytes(use, size * kind.itemsize, phase).view(kind)


def ordered(
    work: Callable[[TaskT], ResultT],
    tasks: Iterable[TaskT],
    *,
    jobs: int,
    in_flight: int | None = None,
    size: Callable[[TaskT], int] | None = None,
) -> Generator[ResultT, None, None]:
    """Call ``work`` on every task on threads and yield the results in the order of the tasks.

    A window slides over the tasks. The caller's thread fills it and yields from its front::

        for task in tasks:                  # drawn here, so a generator of tasks needs no lock
            window.append(submit(task))
            if len(window) == in_flight:
                yield window.popleft().result()    # waits for the oldest task only

    With ``in_flight=4``, task 4 is drawn only when the result of task 0 has been taken. So at most ``in_flight``
    tasks wait, run or hold a result, and memory does not grow with their number. An exception of a task is raised
    in its turn; closing the generator cancels waiting tasks and joins running ones, which then, and after a signal,
    wait for no service any more.

    Handing a task to another thread takes some fifty microseconds, which is more than a tensor of a thousand elements
    does. So with ``size``, small tasks share a place in the window::

        sizes 4M 4M 64 64 64 4M     ->  [4M] [4M] [64 64 64] [4M]

    ``tasks``: can be a generator that reads from disk. ``in_flight``: size of the window; default ``jobs + 2``.
    ``size``: elements of a task; tasks go together up to :data:`BATCH_NUMEL`. Without, each task goes alone.
    """
    room = in_flight or jobs + 2
    window: deque[_Batch[TaskT, ResultT]] = deque()
    with threads(jobs) as pool:
        try:
            for batch in _batches(tasks, size):
                window.append(_Batch(pool, work, batch))
                del batch  # the window alone keeps the blocks' memory
                if len(window) >= room:
                    yield from window.popleft().results()
            while window:
                yield from window.popleft().results()
        finally:
            for waiting in window:
                waiting.future.cancel()


class _Batch(Generic[TaskT, ResultT]):
    """Tasks that one thread works through, and their results."""

    def __init__(self, pool: ThreadPoolExecutor, work: Callable[[TaskT], ResultT], tasks: list[TaskT]) -> None:
        self._work, self._tasks = work, deque(tasks)
        self._done: deque[ResultT] = deque()
        self.future = pool.submit(self._run)

    def _run(self) -> None:
        work, tasks, done = self._work, self._tasks, self._done
        del self  # as in result_of
        while tasks:
            done.append(work(tasks.popleft()))

    def results(self) -> Iterator[ResultT]:
        """Results in order, and then the error that ended the batch, if any."""
        self.future.exception()  # waits, and does not raise yet
        while self._done:
            yield self._done.popleft()
        try:
            self.future.result()
        finally:
            del self.future  # as in result_of


def _batches(tasks: Iterable[TaskT], size: Callable[[TaskT], int] | None) -> Iterator[list[TaskT]]:
    """Tasks in their order, small ones together; see :func:`ordered`."""
    batch: list[TaskT] = []
    total = 0
    for task in tasks:
        numel = BATCH_NUMEL if size is None else size(task)
        if batch and (total + numel > BATCH_NUMEL or len(batch) == BATCH_TASKS):
            yield batch
            batch, total = [], 0
        batch.append(task)
        total += numel
        if numel >= BATCH_NUMEL:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def each(items: Iterable[TaskT], work: Callable[[TaskT], None], jobs: int) -> None:
    """Call ``work`` on every item, ``jobs`` at a time.

    After an error few others start; what runs is finished, then the error is raised. After a signal it is not.
    """
    results = map(work, items) if jobs == 1 else ordered(work, items, jobs=jobs)
    deque(results, maxlen=0)


@contextmanager
def threads(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are joined at the end; when a signal is the end, they wait for no service before."""
    crew = Crew()
    with ThreadPoolExecutor(jobs, thread_name_prefix="maskreg", initializer=crew.enter) as pool:
        try:
            yield pool
        except BaseException as error:
            if not isinstance(error, Exception):
                crew.abandon()
            raise
