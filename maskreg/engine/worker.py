"""What runs in a worker's process: works are unpickled once, tasks come in batches, results go back measured.

It knows nothing of the cluster, so it can be tested in any process.
"""

from __future__ import annotations

import pickle
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maskreg.errors import ConfigError, NotAllowedError, NotFoundError, UnavailableError, WorkerError
from maskreg.version import __version__


@dataclass(frozen=True)
class Outcome:
    """What became of a batch.

    Attributes:
        results: of its first tasks, in order.
        error: what ended the batch; None when all of its tasks have a result.
    """

    results: tuple[Any, ...]
    error: BaseException | None = None


_OF_A_MACHINE = (ConfigError, NotAllowedError, NotFoundError, UnavailableError)
"""Errors that another machine need not have: it may have credentials, a network or a disk that this one lacks."""


class Worker:
    """Works through batches, one after another."""

    def __init__(self) -> None:
        """Nothing is opened yet."""
        self._number = -1
        self._work: Callable[[Any], Any] | None = None

    def version(self) -> str:
        """The version of maskreg in this process."""
        return __version__

    def run(self, number: int, fetch: Callable[[], bytes], tasks: bytes) -> tuple[int, Outcome]:
        """Work through a batch.

        Args:
            number: of the work.
            fetch: gets the pickled work, when it is another one than before.
            tasks: the batch, a pickled list.

        Returns:
            Bytes of the outcome, and the outcome.
        """
        results: list[Any] = []
        error: BaseException | None = None
        try:
            if self._work is None or self._number != number:
                # What the work before it had open is closed first.
                self._work = None
                self._work, self._number = pickle.loads(fetch()), number  # noqa: S301 - from the driver
            for task in pickle.loads(tasks):  # noqa: S301 - from the driver
                results.append(self._work(task))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:  # raised again by the driver, in the task's turn
            error = _portable(raised)
        outcome = Outcome(tuple(results), error)
        return size_of(outcome), outcome


def size_of(value: object) -> int:
    """Bytes that a value takes on its way."""
    buffers: list[pickle.PickleBuffer] = []
    return len(pickle.dumps(value, 5, buffer_callback=buffers.append)) + sum(b.raw().nbytes for b in buffers)


def _portable(error: BaseException) -> BaseException:
    """The error, with where it happened; one that cannot be pickled is told as text."""
    if isinstance(error, _OF_A_MACHINE):
        error.message = f"node {socket.gethostname()}: {error.message}"
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled here
    except (TypeError, ValueError, AttributeError, pickle.PickleError):
        return WorkerError(text)
    error.add_note(f"raised in a worker:\n{text}")
    return error
