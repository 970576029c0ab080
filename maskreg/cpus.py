"""How many CPUs this process may use: those of the machine, of its affinity mask and of its control group."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def available_cpus(groups: Path = _GROUPS, root: Path = _ROOT) -> int:
    """CPUs that this process may use, at least 1.

    A container on a machine of 64 CPUs may run on all of them and still get the time of two: ``docker run --cpus 2``
    sets no affinity mask but a quota. More threads than that only wait for each other.

    Args:
        groups: the file that lists the control groups of the process.
        root: where control groups are mounted.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([cpus, *_quotas(groups, root)])))


def _quotas(groups: Path, root: Path) -> Iterator[float]:
    """The quotas of the process's control groups and of the groups around them, in CPUs.

    ::

        0::/user/job            version 2: root/user/job/cpu.max "200000 100000", or "max 100000", is 2 CPUs
        4:cpu,cpuacct:/job      version 1: root/cpu,cpuacct/job/cpu.cfs_quota_us and cpu.cfs_period_us; -1 is none
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / controllers
        # In a container the path may be that of the host; then the mount itself is the group.
        group = mount / path.lstrip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(mount))):
            with suppress(OSError, ValueError, ZeroDivisionError):
                yield _quota(folder, version=1 if controllers else 2)


def _quota(folder: Path, version: int) -> float:
    if version == 2:
        quota, _, period = (folder / "cpu.max").read_text().strip().partition(" ")
        return math.inf if quota == "max" else int(quota) / int(period)
    quota_us = int((folder / "cpu.cfs_quota_us").read_text())
    return math.inf if quota_us < 0 else quota_us / int((folder / "cpu.cfs_period_us").read_text())
