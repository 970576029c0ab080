"""CPU seconds (user and system) of whole commands that have almost nothing to do.

The first and the second run of each are in a fresh copy of a home: settings and a registry, but no caches. Then the
best of several runs counts. The interpreter's compiled files are there, as after installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.commands import MASKREG, make_pair
from scripts.bench.folders import work_folder

GIGABYTES = 0.002
"""Size of each of the checkpoints."""

Line = tuple[str | Path, ...]

COMMANDS: dict[str, Callable[[Path, int], Line]] = {
    "--help": lambda pair, run: ("--help",),
    "list": lambda pair, run: ("list",),
    "list --remote": lambda pair, run: ("list", "--remote", "team"),
    "show": lambda pair, run: ("show", "opd"),
    "tag": lambda pair, run: ("tag", "opd", f"best{run}"),
    "pull": lambda pair, run: ("pull", "opd"),
    "verify": lambda pair, run: ("verify", "opd"),
    "apply": lambda pair, run: ("apply", "opd", "--source", pair / "source", "-o", f"out{run}"),
    "compare": lambda pair, run: ("compare", "opd", "random"),
    "extract": lambda pair, run: ("extract", pair / "source", pair / "target", "--name", f"again{run}"),
    "doctor": lambda pair, run: ("doctor",),
}
"""What is typed for each command, by the folder of the checkpoints and the number of the run."""


@dataclass(frozen=True)
class Start:
    """The CPU seconds of one command.

    Attributes:
        command: its name.
        first: in a home without caches.
        second: after that.
        best: the least of all runs.
    """

    command: str
    first: float
    second: float
    best: float


def bench(parent: Path | None, runs: int) -> list[Start]:
    """Measure every command.

    Args:
        parent: where to work; the system's place for temporary files by default.
        runs: of each command after the first two.
    """
    with work_folder(parent) as folder:
        make_pair(folder / "source", folder / "target", GIGABYTES)
        home = folder / "home"
        for line in _preparations(folder, home):
            _run(home, *line)
        return [_measured(name, folder, home, runs) for name in COMMANDS]


def table(results: list[Start]) -> str:
    """The figures as text."""
    rows = [f"  {row.command:15}{row.first:8.2f}{row.second:8.2f}{row.best:8.2f}" for row in results]
    return "\n".join(["start: CPU seconds", f"  {'command':15}{'first':>8}{'second':>8}{'best':>8}", *rows])


def _preparations(pair: Path, home: Path) -> Iterator[Line]:
    (home / "team").mkdir(parents=True)
    yield "extract", pair / "source", pair / "target", "--name", "opd", "--method", "opd"
    yield "baseline", "opd", "--kind", "random-global", "--seed", "0", "--name", "random"
    yield "remote", "add", "team", "team"
    yield "push", "opd"


def _measured(name: str, pair: Path, home: Path, runs: int) -> Start:
    fresh = pair / "fresh"
    shutil.copytree(home, fresh, symlinks=True)
    seconds = [_run(fresh, *COMMANDS[name](pair, run)) for run in range(2 + runs)]
    shutil.rmtree(fresh)
    return Start(name, seconds[0], seconds[1], min(seconds))


def _run(home: Path, *args: str | Path) -> float:
    """CPU seconds of a command, and of processes that it waits for."""
    own = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "MASKREG_HOME": home / "registry"}
    env = {**os.environ, **{name: str(path) for name, path in own.items()}, "MASKREG_CONFIG": str(home / "config.toml")}
    with (home / "stderr").open("w+b") as errors:
        process = subprocess.Popen(
            [MASKREG, *args], cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            raise SystemExit(f"maskreg {args[0]} failed with exit code {process.returncode}: {said}")
    return usage.ru_utime + usage.ru_stime
