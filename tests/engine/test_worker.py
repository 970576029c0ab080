from __future__ import annotations

import pickle
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskreg.engine.worker import Outcome, Packed, Worker
from maskreg.errors import RefusedError
from tests.engine.works import Poisoned, refused


def outcome(work: bytes, *tasks: int) -> Outcome:
    worker = Worker()
    worker.take_work(work)
    return ran(worker, *tasks)


def ran(worker: Worker, *tasks: int) -> Outcome:
    result = worker.run(pickle.dumps(tasks)).value()
    assert isinstance(result, Outcome)
    return result


@dataclass
class Opened:
    """Notes in a folder how often it was unpickled."""

    folder: Path

    def __setstate__(self, state: dict[str, Path]) -> None:
        (state["folder"] / str(len(list(state["folder"].iterdir())))).touch()
        self.__dict__.update(state)

    def __call__(self, number: int) -> int:
        """The number itself."""
        return number


def test_a_work_is_opened_once_and_another_one_replaces_it(tmp_path: Path) -> None:
    worker = Worker()
    worker.take_work(pickle.dumps(Opened(tmp_path)))
    assert ran(worker, 1, 2) == Outcome((1, 2))
    assert ran(worker, 3) == Outcome((3,))
    assert len(list(tmp_path.iterdir())) == 1
    worker.take_work(pickle.dumps(Poisoned(9)))
    assert ran(worker, 5) == Outcome((5,))


def test_an_error_of_a_machine_names_it() -> None:
    result = outcome(pickle.dumps(refused), 7)
    assert isinstance(result.error, RefusedError)
    assert str(result.error) == f"node {socket.gethostname()}: s3://b: no credentials"
    assert result.error.hint == "set them"


def test_a_work_that_does_not_open_is_an_error_of_its_tasks() -> None:
    assert isinstance(outcome(b"no pickle", 7).error, pickle.UnpicklingError)


def test_arrays_travel_beside_what_is_pickled_and_count_with_all_their_bytes() -> None:
    array = np.arange(1 << 20, dtype=np.uint8)
    packed = Packed.of(("name", array))
    assert len(packed.pickled) < 1000
    assert packed.size == len(packed.pickled) + (1 << 20)
    name, values = packed.value()
    assert name == "name"
    assert np.shares_memory(values, array)
