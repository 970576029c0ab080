"""Load on a server: latencies by locust, and what the server's processes cost, from ``/proc``."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """What one run of clients measured.

    Attributes:
        name: of the requests.
        requests: how many were answered.
        failures: how many were refused.
        rate: requests a second.
        median, p95, p99: milliseconds until the answer was there.
        cpu: milliseconds of CPU that the server's processes took for one request; those of the database left out.
        memory: MiB of the server's processes at the end.
        busy: load average of the machine at the end; other work shared it.
    """

    name: str
    requests: int
    failures: int
    rate: float
    median: float
    p95: float
    p99: float
    cpu: float
    memory: float
    busy: float


def family(pid: int) -> list[int]:
    """A process and those below it."""
    members = [pid]
    for member in members:
        for tasks in Path(f"/proc/{member}/task").glob("*/children"):
            members += map(int, tasks.read_text().split())
    return members


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and those below it, with that of those below it which have ended."""
    fields = (Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split() for member in family(pid))
    return sum(int(field) for row in fields for field in row[11:15]) / _TICKS


def memory_mib(pid: int) -> float:
    """Private and shared memory of a process and those below it; what they share is counted once."""
    total = 0
    for member in family(pid):
        rows = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        total += next(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return total / 1024


def press(
    user: str, tags: Sequence[str], url: str, pid: int, *, users: int, pace: float, seconds: float, requests: int = 0
) -> Load:
    """Let clients send requests.

    Args:
        user: a class of ``clients.py``.
        tags: which of its tasks.
        url: of the server.
        pid: the server's first process.
        users: clients at the same time.
        pace: requests a second that each sends on average.
        seconds: how long.
        requests: after how many it ends sooner; 0 for any number.
    """
    before = cpu_seconds(pid)
    with TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(Path(__file__).with_name("clients.py")),
            "--headless",
            "--only-summary",
        ]
        command += ["--tags", *tags, "--users", str(users), "--spawn-rate", str(users), "--host", url]
        command += ["--run-time", f"{round(seconds)}s", "--csv", f"{folder}/load", "--exit-code-on-error", "0", user]
        own = {**os.environ, "BENCH_PACE": str(pace), "BENCH_REQUESTS": str(requests)}
        own |= {"PYTHONPATH": str(Path.cwd()), "GEVENT_SUPPORT": "True"}
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        with Path(folder, "load_stats.csv").open() as stream:
            row = next(row for row in csv.DictReader(stream) if row["Name"] == "Aggregated")
    count = int(row["Request Count"])
    return Load(
        name=", ".join(tags),
        requests=count,
        failures=int(row["Failure Count"]),
        rate=round(float(row["Requests/s"]), 1),
        median=float(row["50%"]),
        p95=float(row["95%"]),
        p99=float(row["99%"]),
        cpu=round((cpu_seconds(pid) - before) / count * 1000, 2),
        memory=round(memory_mib(pid), 1),
        busy=round(os.getloadavg()[0], 1),
    )
