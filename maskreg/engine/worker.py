"""What runs in a worker's process: a work is opened once, tasks come in batches, and results go back packed.

It knows nothing of the cluster, so it can be tested in any process.
"""

from __future__ import annotations

import pickle
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from maskreg.errors import CannotCreateError, ConfigError, NotAllowedError, NotFoundError, UnavailableError, WorkerError
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


_OF_A_MACHINE = (CannotCreateError, ConfigError, NotAllowedError, NotFoundError, UnavailableError)
"""Errors that another machine need not have: it can have credentials, a network or a disk that this one lacks."""


class Packed(NamedTuple):
    """A pickled value whose arrays are beside it, so that they need not be copied.

    Attributes:
        pickled: the value without its arrays.
        arrays: their memory, as :class:`pickle.PickleBuffer` or what a transport makes of that.
    """

    pickled: bytes
    arrays: Sequence[Any]

    @classmethod
    def of(cls, value: object) -> Packed:
        """Pack a value; its arrays are not copied."""
        arrays: list[pickle.PickleBuffer] = []
        return cls(pickle.dumps(value, 5, buffer_callback=arrays.append), arrays)

    @property
    def size(self) -> int:
        """Bytes that it takes on its way."""
        return len(self.pickled) + sum(memoryview(array).nbytes for array in self.arrays)

    def value(self) -> Any:
        """The value; its arrays lie in the memory of :attr:`arrays`, and are read-only."""
        return pickle.loads(self.pickled, buffers=self.arrays)  # noqa: S301 - packed by a worker


class Worker:
    """Works through batches, one after another."""

    def __init__(self) -> None:
        """Nothing is opened yet."""
        self._pickled = b""
        self._work: Callable[[Any], Any] | None = None

    def version(self) -> str:
        """The version of maskreg in this process."""
        return __version__

    def take_work(self, work: bytes) -> None:
        """Replace the work; it is opened when its first batch comes."""
        # What the work before it had open is closed.
        self._pickled, self._work = work, None

    def run(self, tasks: bytes) -> Packed:
        """Work through a batch.

        Returns its :class:`Outcome`.
        """
        results: list[Any] = []
        error: BaseException | None = None
        try:
            if self._work is None:
                self._work = pickle.loads(self._pickled)  # noqa: S301 - from the driver
            for task in pickle.loads(tasks):  # noqa: S301 - from the driver
                results.append(self._work(task))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:  # raised again by the driver, in the task's turn
            error = _portable(raised)
        return Packed.of(Outcome(tuple(results), error))


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
