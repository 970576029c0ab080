"""An engine for tests: one process that shares nothing with this one but the disk, and no Ray.

What it is handed is pickled, and the sizes are noted, as everything has to travel on a cluster.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import cloudpickle  # type: ignore[import-untyped]
import pytest

from maskreg.engine import ENGINES, ResultT, TaskT
from maskreg.engine.worker import Outcome, Packed, Worker

_worker = Worker()


def _take_work(work: bytes) -> None:
    _worker.take_work(work)


def _run(tasks: bytes) -> tuple[bytes, list[bytes]]:
    # Arrays are copied here, which a cluster's memory spares.
    pickled, arrays = _worker.run(tasks)
    return pickled, [bytes(array) for array in arrays]


class SubprocessEngine:
    """See :class:`maskreg.engine.Engine`.

    Attributes:
        largest_work: bytes of the largest pickled work.
        largest_task: bytes of the largest pickled task.
    """

    def __init__(self) -> None:
        # A new interpreter, not a copy of this one: what this one has open or has set is not there.
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self.forget()

    def forget(self) -> None:
        """Forget what was noted."""
        self.largest_work = self.largest_task = 0

    def ordered(
        self, work: Callable[[TaskT], ResultT], drawn: Iterable[tuple[Sequence[TaskT], str]]
    ) -> Generator[ResultT, None, None]:
        """Call ``work`` on every task there, batch by batch."""
        pickled: bytes = cloudpickle.dumps(work)
        self.largest_work = max(self.largest_work, len(pickled))
        self._pool.submit(_take_work, pickled).result()
        for batch, _ in drawn:
            tasks = pickle.dumps(batch)
            self.largest_task = max(self.largest_task, len(tasks) // len(batch))
            outcome: Outcome = Packed(*self._pool.submit(_run, tasks).result()).value()
            yield from outcome.results
            if outcome.error is not None:
                raise outcome.error

    def close(self) -> None:
        """Do nothing: the process serves all tests."""

    def end(self) -> None:
        """End the process."""
        self._pool.shutdown()


@pytest.fixture(scope="session")
def _subprocess_engine() -> Iterator[SubprocessEngine]:
    engine = SubprocessEngine()
    yield engine
    engine.end()


@pytest.fixture
def subprocess_engine(_subprocess_engine: SubprocessEngine, monkeypatch: pytest.MonkeyPatch) -> SubprocessEngine:
    """The engine, which ``running_on("subprocess")`` takes in this test."""
    _subprocess_engine.forget()
    monkeypatch.setitem(ENGINES, "subprocess", lambda address, workers, label: _subprocess_engine)
    return _subprocess_engine
