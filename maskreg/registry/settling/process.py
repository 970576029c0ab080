"""Which process wrote a record, so that others on the same machine can tell what has become of it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from maskreg.disk import is_alive

_PROC = Path("/proc")
_NAMESPACES = ("pid", "time")
_STATE, _THREADS, _STARTED = 0, 17, 19
# Positions in /proc/PID/stat behind the process's name, which may hold spaces and brackets.


class Fate(Enum):
    """What has become of a process, as far as this machine can tell."""

    ENDED = "ended"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Process:
    """A process, named so that no other process on any machine is taken for it.

    Attributes:
        host: the machine's name.
        boot: id of the machine's last start; empty where the system does not tell.
        namespace: in which its number and start time count: containers on one machine number their processes anew.
        pid: its number.
        started: when it started, in clock ticks since the machine did: numbers are used again.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Process:
        """The process that asks."""
        boot, namespace, started = "", "", 0
        with suppress(OSError):
            # A container may show the processes of another namespace in /proc, with other numbers.
            if (_PROC / "self").readlink() == Path(str(os.getpid())):
                namespace = " ".join(str((_PROC / "self/ns" / name).readlink()) for name in _NAMESPACES)
                boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
                started = int(_stat(os.getpid())[_STARTED])
        return cls(socket.gethostname(), boot, namespace, os.getpid(), started)

    @classmethod
    def from_json(cls, value: Any) -> Process:
        """Parse :meth:`to_json`.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(value, dict):
            raise ValueError("not a process")
        host, boot, namespace = (str(value.get(name)) for name in ("host", "boot", "namespace"))
        pid, started = value.get("pid"), value.get("started")
        if type(pid) is not int or type(started) is not int or pid <= 0:
            raise ValueError("a process without a number")
        return cls(host, boot, namespace, pid, started)

    def to_json(self) -> dict[str, object]:
        """The process as a record has it."""
        return asdict(self)

    def fate(self) -> Fate:
        """Whether it has ended, or stands still (as after Ctrl-Z).

        Unknown for processes of other machines, boots and namespaces, and for those that run.
        """
        machine = Process.this()
        if not machine.started or (self.host, self.boot, self.namespace) != (
            *(machine.host, machine.boot, machine.namespace),
        ):
            return Fate.UNKNOWN
        if not is_alive(self.pid):
            return Fate.ENDED
        try:
            fields = _stat(self.pid)
        except OSError:
            # It has just ended, or the system hides the processes of other users.
            return Fate.UNKNOWN if is_alive(self.pid) else Fate.ENDED
        if int(fields[_STARTED]) != self.started:
            return Fate.ENDED
        # A process that nobody has waited for yet counts as ended once none of its threads is left.
        if fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1:
            return Fate.ENDED
        return Fate.STOPPED if fields[_STATE] in ("T", "t") else Fate.UNKNOWN


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
