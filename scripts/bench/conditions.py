"""What figures depend on: machine, versions, commit, and what other processes did meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import maskreg
from maskreg.disk import free_bytes
from maskreg.native import library
from scripts.bench.figures import Conditions

ROOT = Path(__file__).parents[2]

LIBRARIES = ("numpy", "xxhash", "numcodecs", "google-crc32c", "zarr", "torch", "lmzip", "zipnn")


class Watch:
    """Follows a run from its beginning; see :meth:`conditions`."""

    def __init__(self, load: float) -> None:
        """Start."""
        self._load = load
        self._began = datetime.now(UTC)
        self._start = time.monotonic()
        self._commit, self._dirty = commit()
        self._used, self._own = _used_seconds(), _own_seconds()

    def conditions(self, folder: Path, *, quick: bool) -> Conditions:
        """Everything, up to now."""
        seconds = time.monotonic() - self._start
        used, others = _used_seconds(), None
        if used is not None and self._used is not None:
            others = max(0.0, used - self._used - (_own_seconds() - self._own)) / seconds
        return Conditions(
            machine=machine(folder),
            software=software(),
            commit=self._commit,
            dirty=self._dirty,
            began=self._began.strftime("%Y-%m-%dT%H:%MZ"),
            seconds=seconds,
            load_before=self._load,
            load_after=os.getloadavg()[0],
            cores_of_others=others,
            quick=quick,
        )


def machine(folder: Path) -> dict[str, str]:
    """The hardware, as far as the system tells; the disk holds ``folder``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": str(cores),
        "kernels": library().level,
        "memory": f"{memory / 1e9:.0f} GB",
        "disk": f"{free_bytes(folder) / 1e9:.0f} GB free",
        "system": platform.platform(),
    }


def software() -> dict[str, str]:
    """Versions of maskreg, Python and the libraries that matter."""
    versions = {"maskreg": maskreg.__version__, "Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def commit() -> tuple[str, bool]:
    """The commit, and whether tracked files differ from it; empty and True where git does not know."""
    queries = (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    try:
        head, changes = [subprocess.check_output(["git", *query], cwd=ROOT, text=True).strip() for query in queries]
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "", True
    return head, bool(changes)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = (line.partition(":") for line in (path.read_text().splitlines() if path.exists() else ()))
    facts = {key.strip(): value.strip() for key, _, value in lines}
    name = facts.get("model name", platform.processor() or platform.machine())
    return f"{name} (cpu family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"


def _used_seconds() -> float | None:
    """CPU seconds of all processes since the machine started; None where the system does not say."""
    path = Path("/proc/stat")
    if not path.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, path.read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
