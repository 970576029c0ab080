"""What a Ray cluster costs: extract and apply on workers of this machine, beside as many threads, in one run.

A generated pair. In turn, each round: extract on threads, extract on workers; apply likewise. The start of the cluster
and of its workers is apart, as that of the process is for threads. CPU seconds are those of all processes: the driver,
the workers, and the cluster's own. With --simulated, N workers that compute nothing return blocks of that size, which
shows what the driver does for each.

    scripts/bench/run ray --gigabytes 4 --workers 2
    scripts/bench/run ray --simulated 64
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.engine import ordered, running_on
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.store.file import FileStore
from scripts.bench.process_memory import peak, resident
from tests.e2e.running import big_pair

BAR = 1.15
"""Time on workers that is allowed, of the time on as many threads."""

DRIVER_BAR = 0.1
"""Time of the driver for a result that is allowed, of a worker's."""

_TICKS = os.sysconf("SC_CLK_TCK")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        "scripts/bench/run ray", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of each checkpoint")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/dev/shm", help="folder to work in")
    parser.add_argument("--simulated", type=int, metavar="N", help="measure the driver with N workers instead")
    options = parser.parse_args(argv)
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    if options.simulated:
        figures = driven(options.simulated)
        print(json.dumps(figures, indent=2))
        return 0 if figures["driver / worker"] < DRIVER_BAR else 1
    with tempfile.TemporaryDirectory(prefix="maskreg-ray-", dir=options.dir) as folder:
        measurements = measured(Path(folder), options.gigabytes, options.workers, options.rounds)
    print(json.dumps(measurements, indent=2))
    return 0 if all(figures["wall ratio"] <= BAR for figures in measurements.values()) else 1


def measured(folder: Path, gigabytes: float, workers: int, rounds: int) -> dict[str, dict[str, float]]:
    """By command, median wall and CPU seconds on threads and on workers, and the ratios."""
    pair = big_pair(folder, max(int(gigabytes * 954), 8))
    digest = _extract(pair, folder / "kept", workers)
    artifact = FileStore(folder / "kept")

    def applied() -> None:
        with open_checkpoint(pair[0]) as source, tempfile.TemporaryDirectory(dir=folder) as out:
            apply(Artifact.open(artifact, digest), source, Path(out) / "out", jobs=workers)

    def extracted() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as home:
            if _extract(pair, Path(home), workers) != digest:
                raise AssertionError("another digest")

    figures: dict[str, dict[str, list[float]]] = {}
    for name, work in {"extract": extracted, "apply": applied}.items():
        times: dict[str, list[float]] = {}
        with running_on("ray", workers=workers, label=f"bench {name}"):
            list(ordered(abs, range(100 * workers), jobs=1))  # starts the cluster and its workers
            for _ in range(rounds):
                for engine in ("threads", "ray"):
                    # Threads for a while, within a cluster that goes on.
                    with running_on("threads") if engine == "threads" else nullcontext():
                        wall, cpu = _spent(work)
                    times.setdefault(f"{engine} wall s", []).append(wall)
                    times.setdefault(f"{engine} CPU s", []).append(cpu)
        figures[name] = times
    return {name: _summary(times) for name, times in figures.items()}


def _summary(times: dict[str, list[float]]) -> dict[str, float]:
    median = {name: round(statistics.median(values), 2) for name, values in times.items()}
    # Of each round, so that what else the machine does weighs on both.
    ratios = {
        f"{kind} ratio": round(
            statistics.median(
                ray / threads for ray, threads in zip(times[f"ray {kind} s"], times[f"threads {kind} s"], strict=True)
            ),
            3,
        )
        for kind in ("wall", "CPU")
    }
    return {**median, **ratios}


@dataclass(frozen=True)
class _Simulated:
    """A worker's part without the work: it waits as long as a block takes, and returns coded bytes."""

    seconds: float
    size: int

    def __call__(self, number: int) -> tuple[int, npt.NDArray[np.uint8]]:
        time.sleep(self.seconds)
        return number, np.zeros(self.size, np.uint8)


def driven(workers: int, results: int = 2048, seconds: float = 0.25, size: int = 1 << 20) -> dict[str, float]:
    """What the driver needs for a result: CPU milliseconds, beside the worker's time for it, and its memory.

    Args:
        workers: actors; the cluster that is started is told so many CPUs.
        results: blocks.
        seconds: that a worker takes for a block.
        size: bytes of a coded block.
    """
    before = resident()
    with running_on("ray", workers=workers, label="bench driver"):
        list(ordered(abs, range(100), jobs=1))
        spent, began = time.process_time(), time.perf_counter()
        for expected, (number, block) in enumerate(ordered(_Simulated(seconds, size), range(results), jobs=1)):
            if number != expected or block.nbytes != size:
                raise AssertionError(f"result {number} in place of {expected}")
        each = (time.process_time() - spent) / results
        wall = time.perf_counter() - began
    return {
        "workers": workers,
        "driver CPU ms / result": round(each * 1e3, 3),
        "driver / worker": round(each / seconds, 4),
        "busy workers": round(results * seconds / wall, 1),
        "driver's peak MB": round(peak() / 1e6),
        "beyond the beginning MB": round((peak() - before) / 1e6),
    }


def _extract(pair: Sequence[Path], home: Path, jobs: int) -> Digest:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        return extract(source, target, home, jobs=jobs).digest


def _spent(work: Callable[[], None]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and all that it has started."""
    start, before = time.perf_counter(), _cpu_seconds()
    work()
    return time.perf_counter() - start, _cpu_seconds() - before


def _cpu_seconds() -> float:
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        # It may end while it is looked at.
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
