"""CPU seconds (user and system) of whole commands that have almost nothing to do.

The first and the second run of each are in a fresh copy of a home: settings and a registry, but no caches. Then the
best of several runs counts. The interpreter's compiled files are there, as after installation.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.commands import MASKREG, make_pair
from scripts.bench.folders import work_folder
from scripts.bench.processes import Cost, environment
from scripts.bench.processes import run as run_program

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
        home = prepared(folder)
        return [_measured(name, folder, home, runs) for name in COMMANDS]


def prepared(folder: Path) -> Path:
    """Make checkpoints in a folder, and a home beside them whose registry and remote have what commands read."""
    make_pair(folder / "source", folder / "target", GIGABYTES)
    home = folder / "home"
    for line in _preparations(folder, home):
        run(home, *line)
    return home


def run(home: Path, *args: str | Path, maskreg: Path = MASKREG) -> Cost:
    """What a command takes.

    Args:
        home: of the user who runs it, and the working folder.
        args: of the command.
        maskreg: the installed command.

    Raises:
        SystemExit: it fails.
    """
    return run_program([maskreg, *args], home, environment(home))


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
    seconds = [run(fresh, *COMMANDS[name](pair, number)).cpu for number in range(2 + runs)]
    shutil.rmtree(fresh)
    return Start(name, seconds[0], seconds[1], min(seconds))
