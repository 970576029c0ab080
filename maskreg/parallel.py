"""Work on threads with bounded memory: results in order (:func:`ordered`), or none at all (:func:`each`).

What a task needs room for comes from :class:`Buffers`, which every worker has of its own and uses again.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from maskreg.cpus import available_cpus
from maskreg.errors import UsageError
from maskreg.waits import Crew

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PAGE = mmap.PAGESIZE
"""Bytes of a page of memory."""

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

BATCH_NUMEL = 1 << 18
"""Elements that small tasks which are handed to a thread together may have: a sixteenth of a block."""

BATCH_TASKS = 256
"""Small tasks that are handed over together at most."""

MAX_DEFAULT_JOBS = 16
"""More threads only wait for the disk and the memory bus, and each holds blocks of about 50 MB."""


def worker_count(jobs: int | None) -> int:
    """Threads to use: ``jobs``, or as many as this process may use CPUs, at most 16.

    Raises:
        UsageError: ``jobs`` is not positive.
    """
    if jobs is None:
        return min(MAX_DEFAULT_JOBS, available_cpus())
    if jobs < 1:
        raise UsageError(f"jobs={jobs}: at least one thread is needed")
    return jobs


class Buffers(threading.local):
    """Memory for the work of one thread; each thread that uses the object has its own.

    The system clears every page that is touched for the first time, at a tenth of the speed at which memory is
    written. So a worker keeps what a task needed and gives it to the next::

        task 1    bytes("source", 8 MiB)    new memory
        task 2    bytes("source", 5 MiB)    its first 5 MiB
        task 3    bytes("source", 9 MiB)    new memory, which replaces it

    Memory begins at a page, or as far behind the beginning of one as the task asks: its *phase*.
    """

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        # Another process has memory of its own.
        return Buffers, ()

    def bytes(self, use: str, size: int, phase: int = 0) -> npt.NDArray[np.uint8]:
        """uint8 ``[size]`` of any content, which the thread's next call with the same ``use`` gives out again.

        Args:
            use: what the memory is for.
            size: bytes.
            phase: how far into a page it begins, in bytes; less than a page.
        """
        import numpy as np

        memory = self._memory.get(use)
        if memory is None or memory.size < size + PAGE:
            # Twice as much at least, so that growing tensors do not replace it each time.
            room = max(size + PAGE, 0 if memory is None else 2 * memory.size)
            memory = np.empty(room + PAGE, np.uint8)
            self._memory[use] = memory = memory[-memory.ctypes.data % PAGE :][:room]
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
    wait for no service any more (:mod:`maskreg.waits`).

    Handing a task to another thread takes some fifty microseconds, which is more than a tensor of a thousand elements
    does. So with ``size``, small tasks share a place in the window::

        sizes 4M 4M 64 64 64 4M     ->  [4M] [4M] [64 64 64] [4M]

    Where a single task may be in flight, the caller's thread works on it: the next is drawn when its result is taken.

    Args:
        work: called on a worker thread.
        tasks: may be a generator that reads from disk.
        jobs: threads.
        in_flight: size of the window; default ``jobs + 2``.
        size: elements of a task; tasks go together up to :data:`BATCH_NUMEL`. Without, each task goes alone.
    """
    room = in_flight or jobs + 2
    if room == 1:
        yield from map(work, tasks)
        return
    window: deque[_Batch[TaskT, ResultT]] = deque()
    with _crew(jobs) as pool:
        try:
            for batch in batches(tasks, size):
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
        while self._tasks:
            self._done.append(self._work(self._tasks.popleft()))

    def results(self) -> Iterator[ResultT]:
        """Results in order, and then the error that ended the batch, if any."""
        self.future.exception()  # waits, and does not raise yet
        while self._done:
            yield self._done.popleft()
        self.future.result()


def batches(
    tasks: Iterable[TaskT],
    size: Callable[[TaskT], int] | None,
    most: int = BATCH_NUMEL,
    near: Callable[[TaskT], str] | None = None,
) -> Iterator[list[TaskT]]:
    """Tasks in their order, small ones together; see :func:`ordered`.

    Args:
        tasks: may be a generator.
        size: elements of a task; without, each task goes alone.
        most: elements of tasks that go together.
        near: where a task's data lies, empty for anywhere; tasks of different places do not go together.
    """
    batch: list[TaskT] = []
    total, place = 0, ""
    for task in tasks:
        numel = most if size is None else size(task)
        own = near(task) if near else ""
        is_elsewhere = bool(own and place) and own != place
        if batch and (total + numel > most or len(batch) == BATCH_TASKS or is_elsewhere):
            yield batch
            batch, total, place = [], 0, ""
        batch.append(task)
        total, place = total + numel, place or own
        if numel >= most:
            yield batch
            batch, total, place = [], 0, ""
    if batch:
        yield batch


def each(items: Iterable[TaskT], work: Callable[[TaskT], None], jobs: int) -> None:
    """Call ``work`` on every item, ``jobs`` at a time, in no particular order.

    After an error nothing new starts; what runs is finished, then the error is raised. After a signal it is not.
    """
    if jobs == 1:
        for item in items:
            work(item)
        return
    running: set[Future[None]] = set()
    with _crew(jobs) as pool:
        for item in items:
            if len(running) == jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            running.add(pool.submit(work, item))
        for future in running:
            future.result()


@contextmanager
def _crew(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are joined at the end; when a signal is the end, they wait for no service before."""
    crew = Crew()
    with ThreadPoolExecutor(jobs, thread_name_prefix="maskreg", initializer=crew.enter) as pool:
        try:
            yield pool
        except BaseException as error:
            if not isinstance(error, Exception):
                crew.abandon()
            raise
