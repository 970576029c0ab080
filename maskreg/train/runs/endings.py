"""Processes of a run that ended before it was complete, as errors that name the process and the signal."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from maskreg.errors import MaskregError, TryAgainError, WorkerError

_RESUME = "run the same command, which resumes from the last checkpoint"

_MEMORY = (
    "free memory and run the same command, which resumes from the last checkpoint; or begin in another -o with"
    " a smaller --micro-batch-size"
)

_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals of a process that went wrong by itself; all others come from outside."""

_NOTICED_SECONDS = 10
"""Time in which the other processes notice that one has ended, and end too. PyTorch stamps whole seconds."""


class Ended(Protocol):
    """What torchrun knows of a process, as :class:`torch.distributed.elastic.multiprocessing.errors.ProcessFailure`.

    Attributes:
        pid: of the process.
        exitcode: negative after a signal.
        message: of the exception that it recorded; a JSON object with the key ``message``, or text.
        error_file: where it recorded that; no file if it did not.
        timestamp: seconds since 1970.
    """

    pid: int
    exitcode: int
    message: str
    error_file: str
    timestamp: int


def first_to_end(failures: Mapping[int, Ended]) -> int:
    """The rank of the process because of which the run ended.

    One process that goes down takes the others with it: they raise exceptions about lost connections, possibly stamped
    earlier than its own end was noticed, and torchrun ends the rest by SIGTERM. So a signal explains an exception, and
    an exception explains a SIGTERM::

        rank 0   ConnectionError   12:00:05
        rank 1   SIGKILL           12:00:06     <- the reason
        rank 2   SIGTERM           12:00:06
    """
    start = min(failure.timestamp for failure in failures.values())

    def order(rank: int) -> tuple[int, int]:
        failure = failures[rank]
        if failure.timestamp - start > _NOTICED_SECONDS or failure.exitcode == -signal.SIGTERM:
            return 2, failure.timestamp
        return int(failure.exitcode >= 0), failure.timestamp

    return min(failures, key=order)


def ended_early(process: str, status: int, reason: str, log: Path) -> MaskregError:
    """The error for a process that ended early."""
    if status == 128 + signal.SIGINT:
        status = -signal.SIGINT
    if status >= 0:
        return WorkerError(f"{process} ended with {status}" + (f": {reason}" if reason else ""), hint=f"less {log}")
    name = _signal_name(-status)
    if name in _CRASHES:
        return WorkerError(f"{process} crashed with {name}", hint=f"less {log}")
    if name == "SIGKILL":
        return TryAgainError(f"{process} was ended by SIGKILL, most likely because memory ran out", hint=_MEMORY)
    return TryAgainError(f"{process} was ended by {name}", hint=_RESUME)


def out_of_memory(error: BaseException) -> TryAgainError:
    """The error for an allocation that failed."""
    first = str(error).strip().partition("\n")[0]
    return TryAgainError(f"memory ran out: {first or type(error).__name__}", hint=_MEMORY)


def _signal_name(number: int) -> str:
    known = {entry.value: entry.name for entry in signal.Signals}
    return known.get(number, f"signal {number}")
