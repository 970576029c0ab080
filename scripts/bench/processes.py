"""What programs take: CPU seconds and time, with the processes that they wait for."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """What a piece of work took.

    Attributes:
        cpu: seconds of CPU time, user and system, of all threads.
        wall: seconds.
    """

    cpu: float
    wall: float


def environment(home: Path) -> dict[str, str]:
    """Environment variables of a user whose settings, registry and caches are in ``home``."""
    own = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "MASKREG_HOME": home / "registry"}
    # An installed package has its bytecode. One that is run from its sources writes it once, unless this forbids it.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **{k: str(path) for k, path in own.items()}, "MASKREG_CONFIG": str(home / "config.toml")}


def run(command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None) -> Cost:
    """Run a program in ``folder``; what it says on stderr is kept there for the message of a failure.

    Raises:
        SystemExit: it fails.
    """
    with (folder / "stderr").open("w+b") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            line = " ".join(map(str, [Path(command[0]).name, *command[1:2]]))
            raise SystemExit(f"{line} failed with exit code {process.returncode}: {said}")
    return Cost(usage.ru_utime + usage.ru_stime, wall)


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has taken so far, with all threads, without other processes; on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
