"""A command in a forked process that kills itself with SIGKILL at a chosen point, or is killed at a chosen time.

Points are the calls with which a command changes something: before a file is opened for writing, made, renamed,
linked or removed, before and after a sync, and before and after bytes are sent to a server. So every order of events
on the disk can be cut at every place, and the same number always cuts at the same place.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.e2e.attack.people import HANG_SECONDS, Hang, Said

_CHANGES = {
    "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate", "os.utime",
    "os.chmod", "sqlite3.connect",
}  # fmt: skip
"""Audit events of calls that change something; ``os.replace`` is ``os.rename``, ``os.unlink`` is ``os.remove``."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Ended:
    """How a forked command ended.

    Attributes:
        killed: by SIGKILL; otherwise it ended by itself.
        status: its exit code; -1 when it was killed.
        points: how many points it passed; 0 when it was killed.
        seconds: how long it ran.
        said: what it printed when it failed.
    """

    killed: bool
    status: int
    points: int
    seconds: float
    said: str


def forked(command: Callable[[], Said], *, at: int = -1, after: float | None = None) -> Ended:
    """Run a command in a forked process.

    Args:
        command: runs it and returns what it said.
        at: number of the point at which it dies, from 0 on; none when negative.
        after: seconds after which it is killed; never when None.

    Raises:
        Hang: it did not end.
    """
    readable, writable = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _live_and_die(command, at, writable)
    os.close(writable)
    try:
        if after is not None:
            _wait(readable, after)
            os.kill(child, signal.SIGKILL)
        elif not _wait(readable, HANG_SECONDS):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise Hang(f"no end after {HANG_SECONDS} seconds")
        _, status = os.waitpid(child, 0)
        report = os.read(readable, 1 << 16).decode()
    finally:
        os.close(readable)
    seconds = time.monotonic() - start
    if os.WIFSIGNALED(status) and not report:
        return Ended(True, -1, 0, seconds, "")
    points, exit_code, said = report.split("\n", 2)
    return Ended(False, int(exit_code), int(points), seconds, said)


def in_background(command: Callable[[], Said], *, at: int = -1) -> int:
    """Run a command in a forked process, which dies at a point if one is given; gives its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if at >= 0:
                _Points(at)
            said = command()
            status = said.status
            if status not in (0, 69):
                print(said, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def exit_code(pid: int) -> int:
    """Wait for a command in a forked process; gives the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _wait(handle: int, seconds: float) -> bool:
    """Whether something can be read in time; the end of the process counts."""
    return bool(select.select([handle], [], [], seconds)[0])


def _live_and_die(command: Callable[[], Said], at: int, report: int) -> NoReturn:
    status = 1
    try:
        points = _Points(at)
        said = command()
        points.at = -1
        text = str(said) if said.status else ""
        os.write(report, f"{points.passed}\n{said.status}\n{text[:4000]}".encode())
        status = 0
    finally:
        # Nothing of the parent's is to be flushed or closed here.
        os._exit(status)


class _Points:
    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0
        sys.addaudithook(self._audit)
        sync = os.fsync
        send = http.client.HTTPConnection.send

        def noticed_sync(handle: Any) -> None:
            self._pass()
            sync(handle)
            self._pass()

        def noticed_send(connection: http.client.HTTPConnection, data: Any) -> None:
            self._pass()
            send(connection, data)
            self._pass()

        os.fsync = noticed_sync  # type: ignore[assignment]
        http.client.HTTPConnection.send = noticed_send  # type: ignore[method-assign, assignment]

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING):
            self._pass()

    def _pass(self) -> None:
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed += 1
