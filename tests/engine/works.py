"""Works for tests of engines: importable, so that workers of a cluster can unpickle them."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from maskreg.errors import CorruptError, RefusedError


@dataclass(frozen=True)
class Squares:
    """Squares numbers, and notes where in ``folder``."""

    folder: Path
    seconds: float = 0.0

    def __call__(self, number: int) -> int:
        """The square."""
        time.sleep(self.seconds)
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{number}\n")
        return number * number


@dataclass(frozen=True)
class Held:
    """Squares numbers: 0 once so many processes have begun, the others once ``folder`` holds a file ``go``."""

    folder: Path
    workers: int

    def __call__(self, number: int) -> int:
        """The square."""
        (self.folder / f"worker-{os.getpid()}").touch()
        while not self._may_go(number):
            time.sleep(0.02)
        return number * number

    def _may_go(self, number: int) -> bool:
        if number == 0:
            return len(list(self.folder.glob("worker-*"))) >= self.workers
        return (self.folder / "go").exists()


@dataclass(frozen=True)
class Poisoned:
    """Refuses one number."""

    bad: int

    def __call__(self, number: int) -> int:
        """The number itself."""
        if number == self.bad:
            raise CorruptError(f"tensor w{number}", "does not decode", hint="pull it again")
        return number


@dataclass(frozen=True)
class Deadly:
    """Kills its process at one number, so often."""

    folder: Path
    bad: int
    times: int

    def __call__(self, number: int) -> int:
        """The number itself."""
        if number == self.bad:
            for time_ in range(self.times):
                try:
                    (self.folder / f"death-{time_}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return number


def block_of(number: int) -> npt.NDArray[np.uint8]:
    """A mebibyte."""
    return np.full(1 << 20, number % 251, np.uint8)


def refused(number: int) -> int:
    """Raises what a machine without credentials does."""
    raise RefusedError("s3://b: no credentials", hint="set them")


def unpicklable_error(number: int) -> int:
    """Raises what cannot be pickled."""

    class LocalError(Exception):
        pass

    raise LocalError(f"at {number}")


def run_with(lock: threading.Lock, number: int) -> int:
    """What needs something that exists in one process alone."""
    with lock:
        return number
