"""Which process a run ended because of, and what is said of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from maskreg.errors import MaskregError, TryAgainError, WorkerError
from maskreg.train.runs.endings import ended_early, first_to_end, out_of_memory

LOG = Path("/run/launcher.log")


@dataclass
class Process:
    """One that torchrun saw end."""

    exitcode: int
    timestamp: int
    pid: int = 7
    message: str = ""
    error_file: str = "<N/A>"


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ({0: Process(1, 5), 1: Process(-signal.SIGKILL, 6)}, 1),
        ({0: Process(-signal.SIGTERM, 5), 1: Process(-signal.SIGKILL, 5)}, 1),
        ({0: Process(-signal.SIGTERM, 5), 1: Process(1, 6)}, 1),
        ({2: Process(1, 6), 1: Process(1, 5)}, 1),
        ({0: Process(1, 5), 1: Process(-signal.SIGKILL, 36)}, 0),
        ({0: Process(-signal.SIGTERM, 9)}, 0),
    ],
    ids=["lost connection", "ended by torchrun", "raised", "raised first", "did not end when told to", "terminated"],
)
def test_the_process_because_of_which_others_end(failures: dict[int, Process], rank: int) -> None:
    assert first_to_end(failures) == rank


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (-signal.SIGKILL, TryAgainError, "was ended by SIGKILL, most likely because memory ran out"),
        (-signal.SIGTERM, TryAgainError, "was ended by SIGTERM"),
        (130, TryAgainError, "was ended by SIGINT"),
        (-signal.SIGSEGV, WorkerError, "crashed with SIGSEGV"),
        (-signal.SIGBUS, WorkerError, "crashed with SIGBUS"),
        (-63, TryAgainError, "was ended by signal 63"),
        (1, WorkerError, "ended with 1: TypeError: x"),
    ],
)
def test_signals_and_exceptions_have_names(status: int, kind: type[MaskregError], words: str) -> None:
    error = ended_early("rank 1 (pid 7)", status, "TypeError: x", LOG)
    assert type(error) is kind
    assert error.message == f"rank 1 (pid 7) {words}"
    assert ("resumes from the last checkpoint" in error.hint) == (kind is TryAgainError)
    assert (error.hint == f"less {LOG}") == (kind is WorkerError)


def test_an_allocation_that_failed() -> None:
    assert out_of_memory(MemoryError()).message == "memory ran out: MemoryError"
    told = out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.\nmore"))
    assert told.message == "memory ran out: CUDA out of memory. Tried to allocate 2 GiB."
