"""Tests masked retraining: a small model is distilled on the mask of another run, and on masks that control for it.

On-policy distillation of a 5 M parameter model that answers sums (2,048 tokens; reverse KL over the whole vocabulary on
the student's own samples, AdamW, bf16 weights with fp32 masters): from CHECKPOINTS/source toward CHECKPOINTS/teacher,
once on all coordinates and once on each mask. The OPD mask is what a full run with a seed of its own changes visibly.

Primary endpoints, fixed before the first run, on held-out problems, without sampling, as paired differences between
arms over training seeds with 95 % intervals (paired t):
  KL         KL(model || teacher) over the vocabulary, mean over the tokens of right answers
  P(answer)  mean probability of the right answer and its end
Greedy accuracy over all held-out problems, and KL on the model's own samples, are secondary.

Learning rates of SGD (by KL on the problems that are trained on) and of random masks with matched norm (their update
in fp32 masters as long as the OPD mask's), and the density of the thinned OPD mask (visible density of random masks),
come from runs with a seed of no arm. It exits with 1 if the full arm does not beat the source by 5 paired standard
deviations: then nothing was tested.

The forward pass computes in fp32 with the bf16 weights' values; gradients reach the optimizer in bf16. Every finished
run is a file in the results folder: run the same command again to go on. About an hour on two cores.

  scripts/reproduce/run ../shared/data/tiny --out .reproduce
  scripts/reproduce/run ../shared/data/tiny --out .reproduce --docs docs
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import torch

from maskreg.errors import MaskregError, NotFoundError, UsageError
from maskreg.train.recipes.vocabulary import check_vocabularies
from scripts.reproduce.arms import ARMS, Settled, arms_of, first_jobs, jobs_of, settle, tuning_jobs
from scripts.reproduce.masks import extracted
from scripts.reproduce.plot import draw
from scripts.reproduce.setting import Setting
from scripts.reproduce.statistics import Results
from scripts.reproduce.student import tokenizer
from scripts.reproduce.table import data, markdown
from scripts.reproduce.training import Job, look_at, run, time_steps

QUICK: dict[str, Any] = {"steps": 4, "batch": 16, "arms": ("full", "OPD mask", "random"), "seeds": (0,)}

Work = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]
"""Name of the file, and what fills it."""


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="folder with source/, teacher/ and, for its arm, rlvr/")
    parser.add_argument("--out", type=Path, default=Path(".reproduce"), help="results folder (default .reproduce)")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write retrain.md and retrain.svg there, not in --out")
    parser.add_argument("--quick", action="store_true", help="4 steps of 16 prompts, 3 arms, 1 seed: does it run?")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each (default 2)")
    parser.add_argument("--seeds", type=int, nargs="+", help="training seeds (default 0 1 2 3 4)")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), help="only these; full is always one")
    parser.add_argument("--steps", type=int, help="of each run (default 100)")
    parser.add_argument("--batch", type=int, help="prompts a step (default 96)")
    parser.add_argument("--lr", type=float, help="of AdamW (default 1e-6)")
    return parser.parse_args(arguments)


def setting_of(options: argparse.Namespace) -> Setting:
    """What was asked for.

    Raises:
        NotFoundError: there are no such checkpoints.
        PairMismatchError: their vocabularies differ.
    """
    for name in ("source", "teacher"):
        if not (options.checkpoints / name / "config.json").is_file():
            raise NotFoundError(
                f"{options.checkpoints / name} is no checkpoint", hint="a folder that holds source/ and teacher/"
            )
    asked = {name: getattr(options, name) for name in ("seeds", "arms", "steps", "batch", "lr")}
    chosen = {**(QUICK if options.quick else {}), **{name: v for name, v in asked.items() if v is not None}}
    for name in ("seeds", "arms"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    if chosen.get("arms") and "full" not in chosen["arms"]:
        chosen["arms"] = ("full", *chosen["arms"])
    setting = Setting(str(options.checkpoints.resolve()), **chosen)
    from transformers import AutoConfig

    sides = [setting.path(name) for name in ("source", "teacher")]
    check_vocabularies(*(AutoConfig.from_pretrained(side) for side in sides), *(tokenizer(side) for side in sides))
    return setting


class Folder:
    """The results folder, and the processes that fill it."""

    def __init__(self, path: Path, setting: Setting, workers: int) -> None:
        """Make it, or go on in it.

        Raises:
            UsageError: it holds results of another setting, or something else.
        """
        there = path.is_dir() and any(path.iterdir()) and not (path / "setting.json").is_file()
        if there or (path.exists() and not path.is_dir()):
            raise UsageError(f"{path} exists already and holds no results", hint="another --out")
        self.path, self.registry = path, path / "registry"
        (path / "runs").mkdir(parents=True, exist_ok=True)
        # More seeds and arms can be added to what is there; the rest decides every run.
        fixed = replace(setting, seeds=(), arms=()).to_json()
        if self.once("setting", lambda: fixed) != fixed:
            raise UsageError(f"{path} holds results of another setting", hint="another --out")
        one_thread()
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=one_thread) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What a file says; it is made first where it is missing."""
        path = self.path / f"{name}.json"
        if not path.exists():
            write(path, make())
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def all(self, work: Sequence[Work], *, alone: bool = False) -> dict[str, dict[str, Any]]:
        """The records of all, by name; those that are missing are made, several at a time unless ``alone``."""
        missing = [item for item in work if not (self.path / "runs" / f"{item[0]}.json").exists()]
        fill = [partial(_fill, self.path / "runs" / f"{name}.json", make, given) for name, make, given in missing]
        here = self._pool is None or alone
        for done, told in enumerate((each() for each in fill) if here else self._several(fill), 1):
            print(f"{done} of {len(missing)}: {told}", file=sys.stderr, flush=True)
        return {name: self.once(f"runs/{name}", dict) for name, _, _ in work}

    def jobs(self, setting: Setting, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """The records of runs."""
        return self.all([(job.name, run, (setting, job, self.registry)) for job in jobs])

    def _several(self, fill: Sequence[Callable[[], str]]) -> Iterator[str]:
        assert self._pool is not None
        running = [self._pool.submit(each) for each in fill]
        try:
            yield from (future.result() for future in as_completed(running))
        finally:
            for future in running:
                future.cancel()


def write(path: Path, record: Any) -> None:
    """All of a file or nothing."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def reproduce(setting: Setting, folder: Folder) -> tuple[Results, Settled]:
    """Do what has not been done yet."""
    kept = folder.path / "mask"
    first = first_jobs(setting, str(kept))
    ends = [(name, look_at, (setting, name)) for name in ("source", "teacher")]
    found = folder.all([*ends, *((job.name, run, (setting, job, folder.registry)) for job in first)])
    masks = folder.once("masks", lambda: _masks(setting, kept, folder.registry))
    tuned = folder.jobs(setting, tuning_jobs(setting, masks["opd"]))
    by_arm = {record["arm"]: record for record in (*found.values(), *tuned.values())}
    settled = Settled(**folder.once("settled", lambda: asdict(settle(setting, **masks, records=by_arm))))
    jobs = jobs_of(setting, settled)
    records = folder.jobs(setting, jobs)
    runs = {arm: [records[job.name] for job in jobs if job.arm == arm] for arm in arms_of(setting)}
    times = [(f"time-{job.name}", time_steps, (setting, job, folder.registry)) for job in jobs[: len(runs)]]
    alone = folder.all(times, alone=True)
    for job in jobs[: len(runs)]:
        for record in runs[job.arm]:
            record["step_seconds"] = alone[f"time-{job.name}"]["step_seconds"]
    return Results(found["source"], found["teacher"], runs), settled


def _masks(setting: Setting, kept: Path, registry: Path) -> dict[str, str]:
    rlvr = setting.path("rlvr")
    return {
        "opd": extracted(setting, kept, registry),
        "rlvr": extracted(setting, rlvr, registry) if rlvr.is_dir() else "",
    }


def _fill(path: Path, make: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> str:
    record = make(*arguments)
    write(path, record)
    if "held_out" not in record:
        return path.stem
    return f"{path.stem}: KL {record['held_out']['kl']:.4f}, P {record['held_out']['p']:.4f}"


def one_thread() -> None:
    """Leave the other cores to the other processes."""
    torch.set_num_threads(1)


def main() -> int:
    """Run, print the tables, and tell whether anything was tested."""
    options = parsed()
    # Read by libraries when they are first imported, in the processes that are started from here.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"))
    try:
        setting = setting_of(options)
        with Folder(options.out, setting, options.workers) as folder:
            results, settled = reproduce(setting, folder)
    except MaskregError as error:
        print(f"error: {error}\n{error.hint}", file=sys.stderr)
        return 2
    text = markdown(results, settled, setting)
    write(options.out / "results.json", data(results, settled, setting))
    shown = options.docs or options.out
    (shown / "retrain.md").write_text(text, encoding="utf-8")
    draw(results, shown / "retrain.svg")
    print(text)
    if not results.learnt():
        fall, spread = results.gain()
        print(
            f"error: the full arm does not beat the source by 5 paired standard deviations: KL falls by {fall:.4f}, "
            f"standard deviation {spread:.4f}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
