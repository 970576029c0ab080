"""The results folder: a file for every finished run, and the processes that write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import torch

from maskreg.errors import UsageError
from scripts.reproduce.setting import Setting
from scripts.reproduce.training import Job, train

Work = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]
"""Name of a record, the function that computes it, and its arguments."""


class Folder:
    """A results folder."""

    def __init__(self, path: Path, setting: Setting, workers: int) -> None:
        """Create it, or resume in it."""
        foreign = path.is_dir() and any(path.iterdir()) and not (path / "setting.json").is_file()
        if foreign or (path.exists() and not path.is_dir()):
            raise UsageError(f"{path} exists and holds no results", hint="choose another --out")
        self.path, self.registry = path, path / "registry"
        (path / "runs").mkdir(parents=True, exist_ok=True)
        # Seeds and arms can be added later; everything else affects every run. The first mask is the tuning runs'.
        fixed = {**setting.to_json(), "seeds": [], "arms": [], "mask_seeds": list(setting.mask_seeds[:1])}
        if self.once("setting", lambda: fixed) != fixed:
            raise UsageError(f"{path} holds results of another setting", hint="choose another --out")
        one_thread()
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=one_thread) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The content of a file, which is written first if it is missing."""
        path = self.path / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write(path, make())
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record

    def records(self, work: Sequence[Work]) -> dict[str, dict[str, Any]]:
        """All records by name; computes those that are missing."""
        missing = [item for item in work if not (self.path / "runs" / f"{item[0]}.json").exists()]
        tasks = [partial(_compute, self.path / "runs" / f"{name}.json", make, args) for name, make, args in missing]
        summaries = self._in_parallel(tasks) if self._pool else (task() for task in tasks)
        for done, summary in enumerate(summaries, 1):
            print(f"{done} of {len(missing)}: {summary}", file=sys.stderr, flush=True)
        return {name: self.once(f"runs/{name}", dict) for name, _, _ in work}

    def jobs(self, setting: Setting, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """The records of training runs."""
        return self.records([(job.name, train, (setting, job, self.registry)) for job in jobs])

    def finished(self, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """The records of those training runs that are there."""
        there = [job.name for job in jobs if (self.path / "runs" / f"{job.name}.json").exists()]
        return {name: self.once(f"runs/{name}", dict) for name in there}

    def _in_parallel(self, tasks: Sequence[Callable[[], str]]) -> Iterator[str]:
        assert self._pool is not None
        running = [self._pool.submit(task) for task in tasks]
        try:
            yield from (future.result() for future in as_completed(running))
        finally:
            for future in running:
                future.cancel()


def write(path: Path, record: Any) -> None:
    """Write a JSON file atomically."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def _compute(path: Path, make: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> str:
    record = make(*args)
    write(path, record)
    if "held_out" not in record:
        return path.stem
    return f"{path.stem}: KL {record['held_out']['kl']:.4f}, P {record['held_out']['p']:.4f}"


def one_thread() -> None:
    """Use one core in this process."""
    torch.set_num_threads(1)
