"""Timing: works that take turns, so that a slow moment of the machine does not fall on a single one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from maskreg.disk import free_bytes
from scripts.bench.figures import Sample

MASKREG = Path(sys.executable).with_name("maskreg")

_LEAST = 1e-9
"""Seconds; a clock might not have moved, and figures are divided by."""

_UNIT = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss`` in bytes."""

# A child's peak memory starts at its parent's, so programs are started by a small process.
_STARTER = """
import json, os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - start
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss], file)
"""


class Cost(NamedTuple):
    """CPU seconds of all threads, seconds, and of programs the peak resident bytes."""

    cpu: float
    wall: float
    peak: int = 0


Work = Callable[[], Mapping[str, Cost]]
"""Does one repetition; returns what each thing in it took, by name."""


def run(command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None) -> tuple[Cost, str]:
    """Run a program in ``folder``; returns what it took, and its output."""
    path = folder.absolute() / "usage.json"
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, path, *command]
    done = subprocess.run(starter, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} cannot be started: {done.stderr}")
    code, cpu, wall, peak = json.loads(path.read_text())
    if code:
        line = " ".join(map(str, [Path(command[0]).name, *command[1:2]]))
        raise SystemExit(f"{line} failed with exit code {code}: {done.stderr}")
    return Cost(cpu, wall, peak * _UNIT), done.stdout


def environment(home: Path) -> dict[str, str]:
    """Environment variables of a user whose settings, registry and caches are in ``home``."""
    own = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "MASKREG_HOME": home / "registry"}
    # An installed package has its bytecode. One that is run from its sources writes it once, unless this forbids it.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **{k: str(path) for k, path in own.items()}, "MASKREG_CONFIG": str(home / "config.toml")}


class Stopwatch:
    """Adds up what pieces of work of this process take, by name."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add what the block takes."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        so_far = self.costs.get(name, Cost(_LEAST, _LEAST))
        self.costs[name] = Cost(so_far.cpu + cpu, so_far.wall + wall)


def timed(name: str, work: Callable[[], object]) -> Work:
    """A work of this process, all of it under one name."""

    def repetition() -> Mapping[str, Cost]:
        watch = Stopwatch()
        with watch(name):
            work()
        return watch.costs

    return repetition


def take_turns(works: Sequence[Work], rounds: int) -> dict[str, Sample]:
    """Run all works in turn, ``rounds`` times. Before several rounds, one that is not counted fills caches."""
    costs: dict[str, list[Cost]] = {}
    for number in range(rounds + (rounds > 1)):
        for work in works:
            for name, cost in work().items():
                costs.setdefault(name, []).append(cost)
        if number == 0 and rounds > 1:
            costs.clear()
    return {
        name: Sample(tuple(cost.cpu for cost in entries), tuple(cost.wall for cost in entries))
        for name, entries in costs.items()
    }


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Confine this process, and those that it starts, to so many cores, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def work_folder(parent: Path | None, gigabytes: float = 0.0) -> Iterator[Path]:
    """A temporary folder in ``parent``; in the system's place for them by default."""
    place = parent or Path(tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    needed, free = int(gigabytes * 4e9) + (256 << 20), free_bytes(place)
    if free < needed:
        raise SystemExit(f"{place} has {free / 1e9:.1f} GB free, but {needed / 1e9:.1f} GB are needed; use --dir")
    with tempfile.TemporaryDirectory(prefix="maskreg-bench-", dir=place) as folder:
        yield Path(folder)
