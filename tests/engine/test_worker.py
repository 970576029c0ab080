from __future__ import annotations

import pickle
import socket
from pathlib import Path

import numpy as np

from maskreg.engine.worker import Outcome, Worker, size_of
from maskreg.errors import CorruptError, RefusedError, WorkerError
from tests.engine.works import Poisoned, Squares, refused, unpicklable_error


def test_a_work_is_fetched_once_and_another_one_replaces_it(tmp_path: Path) -> None:
    worker, fetched = Worker(), []

    def fetch() -> bytes:
        fetched.append(1)
        return pickle.dumps(Squares(tmp_path))

    for tasks in ([1, 2], [3]):
        size, outcome = worker.run(1, fetch, pickle.dumps(tasks))
        assert outcome == Outcome(tuple(n * n for n in tasks))
        assert size == size_of(outcome)
    assert len(fetched) == 1
    assert worker.run(2, lambda: pickle.dumps(Poisoned(9)), pickle.dumps([5]))[1].results == (5,)


def test_results_before_an_error_are_kept() -> None:
    _, outcome = Worker().run(1, lambda: pickle.dumps(Poisoned(2)), pickle.dumps([0, 1, 2, 3]))
    assert outcome.results == (0, 1)
    assert isinstance(outcome.error, CorruptError)
    assert str(outcome.error) == "tensor w2: does not decode"


def test_an_error_of_a_machine_names_it() -> None:
    _, outcome = Worker().run(1, lambda: pickle.dumps(refused), pickle.dumps([7]))
    assert isinstance(outcome.error, RefusedError)
    assert str(outcome.error) == f"node {socket.gethostname()}: s3://b: no credentials"
    assert outcome.error.hint == "set them"


def test_an_error_that_cannot_travel_is_told_as_text() -> None:
    _, outcome = Worker().run(1, lambda: pickle.dumps(unpicklable_error), pickle.dumps([7]))
    assert isinstance(outcome.error, WorkerError)
    assert "LocalError: at 7" in str(outcome.error)


def test_a_work_that_does_not_open_is_an_error_of_its_tasks() -> None:
    _, outcome = Worker().run(1, lambda: b"no pickle", pickle.dumps([7]))
    assert isinstance(outcome.error, pickle.UnpicklingError)


def test_arrays_count_with_all_their_bytes() -> None:
    assert 1 << 20 <= size_of(np.zeros(1 << 20, np.uint8)) < (1 << 20) + 1000
