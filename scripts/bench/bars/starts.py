"""Commands with almost nothing to do, and the first command in an environment that was just installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from scripts.bench import start
from scripts.bench.bars.conditions import ROOT
from scripts.bench.bars.figures import Installed, Sample, Start
from scripts.bench.bars.sampling import sample_of, take_turns
from scripts.bench.folders import work_folder
from scripts.bench.processes import Cost, run

NOT_INSTALLED = (".*", "__pycache__", "*.egg-info", "*.so", "build", "dist")
"""What a copy of the repository does without when it is installed."""

RUNS = 3
"""Of the small apply in a fresh environment."""


def measure(commands: Sequence[str], parent: Path | None, rounds: int) -> tuple[Sample, tuple[Start, ...]]:
    """Each command in turn, twice in a fresh copy of a home.

    Args:
        commands: names from :data:`scripts.bench.start.COMMANDS`.
        parent: where to work.
        rounds: repetitions of each.

    Returns:
        An interpreter that does nothing, and the commands.
    """
    with work_folder(parent) as folder:
        home = start.prepared(folder)
        works = [lambda: {"python": run([sys.executable, "-I", "-c", "pass"], folder)}]
        samples = take_turns([*works, *(partial(_both, name, folder, home) for name in commands)], rounds)
    starts = [Start(name, samples[f"{name}, first"], samples[f"{name}, second"]) for name in commands]
    return samples["python"], tuple(starts)


def _both(name: str, folder: Path, home: Path) -> Mapping[str, Cost]:
    fresh = folder / "fresh"
    shutil.copytree(home, fresh, symlinks=True)
    first, second = (start.run(fresh, *start.COMMANDS[name](folder, number)) for number in range(2))
    shutil.rmtree(fresh)
    return {f"{name}, first": first, f"{name}, second": second}


def installed(parent: Path | None) -> Installed:
    """Install this repository without extras into a fresh environment, and run a small apply there."""
    with work_folder(parent) as folder:
        shutil.copytree(ROOT, folder / "repository", ignore=shutil.ignore_patterns(*NOT_INSTALLED))
        environment = folder / "environment"
        for line in (
            ("venv", "--without-pip", environment),
            ("pip", "--python", environment / "bin" / "python", "install", "--quiet", folder / "repository"),
        ):
            done = subprocess.run([sys.executable, "-m", *line], capture_output=True, text=True)
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
                return Installed(0, {}, Sample((), ()), missing=f"{line[0]}: {reason[0]}")
        home = start.prepared(folder)
        command = environment / "bin" / "maskreg"
        costs = [start.run(home, *start.COMMANDS["apply"](folder, number), maskreg=command) for number in range(RUNS)]
        (packages,) = environment.glob("lib/python*/site-packages")
        sizes: dict[str, int] = {}
        for path in packages.iterdir():
            name = path.name.partition("-")[0].removesuffix(".libs")
            sizes[name] = sizes.get(name, 0) + _bytes(path)
        largest = sorted(sizes.items(), key=lambda item: -item[1])
        return Installed(sum(sizes.values()), dict(largest), sample_of(costs))


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(os.lstat(Path(top) / name).st_size for top, _, names in os.walk(path) for name in names)
