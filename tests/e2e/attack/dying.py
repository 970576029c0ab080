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
from typing import Any

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
        status: its exit code; the negative number of the signal that ended it.
        points: how many points it passed, and what it printed when it failed; 0 and nothing when it was killed.
        seconds: how long it ran.
    """

    status: int
    points: int
    said: str
    seconds: float


def forked(command: Callable[[], Said], *, at: int = -1, after: float = HANG_SECONDS) -> Ended:
    """Run a command in a forked process.

    Args:
        command: runs it and returns what it said.
        at: number of the point at which it dies, from 0 on; none when negative.
        after: seconds after which it is killed.

    Raises:
        Hang: it did not end.
    """
    readable, writable = os.pipe()
    start = time.monotonic()
    pid = in_background(command, at=at, report=writable)
    os.close(writable)
    with os.fdopen(readable) as reports:
        # The end of the process counts as well.
        has_ended = select.select([reports], [], [], after)[0]
        os.kill(pid, signal.SIGKILL)
        killed = exit_code(pid)
        points, status, said = (reports.read() or f"0\n{killed}\n").split("\n", 2)
    if not has_ended and after == HANG_SECONDS:
        raise Hang(f"no end after {after} seconds")
    return Ended(int(status), int(points), said, time.monotonic() - start)


def in_background(command: Callable[[], Said], *, at: int = -1, report: int | None = None) -> int:
    """Run a command in a forked process, which dies at a point if one is given.

    Args:
        command: runs it and returns what it said.
        at: number of the point, from 0 on; none when negative.
        report: a pipe that is told the number of points, the exit code and, of a failure, what was said.

    Returns:
        The number of the process.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            points = _Points(at)
            said = command()
            points.at, status = -1, said.status
            if report is not None:
                os.write(report, f"{points.passed}\n{status}\n{said if status else ''}"[:4000].encode())
            elif status not in (0, 69):
                print(said, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            # Nothing of the parent's is to be flushed or closed here.
            os._exit(status)
    return pid


def exit_code(pid: int) -> int:
    """Wait for a process; gives its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


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
