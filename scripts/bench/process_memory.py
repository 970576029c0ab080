"""Peak memory of processes, without that of the processes that start them.

A child's ``ru_maxrss`` starts at its parent's, so commands are started by a small process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

LINUX = sys.platform == "linux"

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss`` in bytes."""

_STARTER = """
import json, os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_maxrss, usage.ru_utime + usage.ru_stime], file)
"""


def resident() -> int:
    """Resident bytes of this process; resets its peak to them on Linux."""
    if LINUX:
        Path("/proc/self/clear_refs").write_text("5")
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return peak()


def peak() -> int:
    """Peak resident bytes of this process."""
    if LINUX:
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


class Usage(NamedTuple):
    """What a program took.

    Attributes:
        code: its exit code.
        peak: peak resident bytes.
        cpu: CPU seconds.
    """

    code: int
    peak: int
    cpu: float


def run(command: Sequence[str | Path], stdout: BinaryIO, folder: Path, env: Mapping[str, str]) -> tuple[int, int]:
    """Run a program in ``folder``.

    Args:
        command: path and arguments.
        stdout: receives its output.
        folder: working directory; gets a file ``usage.json``.
        env: environment variables.

    Returns:
        Exit code, and peak resident bytes.
    """
    return usage(command, stdout, folder, env)[:2]


def usage(command: Sequence[str | Path], stdout: BinaryIO, folder: Path, env: Mapping[str, str]) -> Usage:
    """The same with CPU seconds."""
    path = folder.absolute() / "usage.json"
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, path, *command]
    subprocess.run(starter, stdout=stdout, cwd=folder, env=dict(env), check=True)
    code, peak_units, cpu = json.loads(path.read_text())
    return Usage(code, peak_units * _UNIT, cpu)
