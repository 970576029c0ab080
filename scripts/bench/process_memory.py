"""How much memory processes take, counted from their own programs: not from those of the processes that start them.

The kernel's ``ru_maxrss`` of a process begins with what the one that started it took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

LINUX = sys.platform == "linux"

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes that ``ru_maxrss`` counts in."""

_STARTER = """
import json, os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_maxrss], file)
"""


def resident() -> int:
    """Bytes of this process in memory, from where its peak counts."""
    if LINUX:
        Path("/proc/self/clear_refs").write_text("5")
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return peak()


def peak() -> int:
    """The most bytes of this process that were in memory."""
    if LINUX:
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def run(command: Sequence[str | Path], into: BinaryIO, folder: Path, environment: Mapping[str, str]) -> tuple[int, int]:
    """Run a program in ``folder``: its exit code, and the most bytes that it had in memory.

    Args:
        command: its path and arguments.
        into: takes what it prints.
        folder: where it runs, and a note about it is left.
        environment: its variables.
    """
    note = folder.absolute() / "usage.json"
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, note, *command]
    subprocess.run(starter, stdout=into, cwd=folder, env=dict(environment), check=True)
    code, most = json.loads(note.read_text())
    return code, most * _UNIT
