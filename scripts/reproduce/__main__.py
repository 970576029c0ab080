"""Tests masked retraining: distills a small model on the mask of another run, and on control masks.

On-policy distillation of a 5 M parameter model that answers sums (2,048 tokens; reverse KL over the whole vocabulary on
the student's own samples, AdamW, bf16 weights with fp32 masters): from CHECKPOINTS/source toward CHECKPOINTS/teacher,
once on all coordinates and once on each mask. The OPD mask is what a full run with another seed changes visibly.

Primary endpoints, fixed before the first run, on held-out problems, without sampling, as paired differences between
arms over training seeds with 95 % intervals (paired t):
  KL         KL(model || teacher) over the vocabulary, mean over the tokens of right answers
  P(answer)  mean probability of the right answer and its end
Greedy accuracy over all held-out problems, and KL on the model's own samples, are secondary.

Tuning runs, with a seed that no arm has, choose the learning rates of SGD (by KL on the training problems) and of
random masks with matched norm (their update in fp32 masters is as long as the OPD mask's), and the density of the
thinned OPD mask (the visible density of random masks). The exit code is 1 if the full arm does not beat the source by
5 paired standard deviations, or if the run that yields the mask changes no weight: then nothing was tested.

The forward pass computes in fp32 with the values of the bf16 weights; the optimizer gets bf16 gradients. Every finished
run is a file in the results folder: the same command resumes. Takes about an hour on two cores.

  scripts/reproduce/run ../shared/data/tiny --out .reproduce
  scripts/reproduce/run ../shared/data/tiny --out .reproduce --docs docs
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskreg.errors import MaskregError, NotFoundError, UsageError
from maskreg.train.recipes.vocabulary import check_vocabularies
from scripts.reproduce.arms import ARMS, Tuning, arms_of, first_jobs, jobs_of, tune, tuning_jobs
from scripts.reproduce.folder import Folder, write
from scripts.reproduce.masks import NothingLearnedError, extract_mask
from scripts.reproduce.plot import draw
from scripts.reproduce.setting import Setting
from scripts.reproduce.statistics import Results
from scripts.reproduce.student import tokenizer
from scripts.reproduce.table import data, markdown
from scripts.reproduce.training import evaluate, time_steps

QUICK: dict[str, Any] = {"steps": 4, "batch": 16, "arms": ("full", "OPD mask", "random"), "seeds": (0,)}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="folder with source/, teacher/ and, for its arm, rlvr/")
    parser.add_argument("--out", type=Path, default=Path(".reproduce"), help="results folder (default .reproduce)")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write retrain.md and retrain.svg there, not in --out")
    parser.add_argument("--quick", action="store_true", help="4 steps of 16 prompts, 3 arms, 1 seed: a smoke test")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each (default 2)")
    parser.add_argument("--seeds", type=int, nargs="+", help="training seeds (default 0 1 2 3 4)")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), help="only these, and full")
    parser.add_argument("--steps", type=int, help="of each run (default 100)")
    parser.add_argument("--batch", type=int, help="prompts in a step (default 96)")
    parser.add_argument("--lr", type=float, help="learning rate of AdamW (default 1e-6)")
    return parser.parse_args(arguments)


def setting_of(options: argparse.Namespace) -> Setting:
    """The setting that the options describe.

    Raises:
        NotFoundError: a checkpoint is missing.
        UsageError: a number is out of range, or seeds are not independent of each other.
        PairMismatchError: their vocabularies differ.
    """
    for name in ("source", "teacher"):
        if not (options.checkpoints / name / "config.json").is_file():
            raise NotFoundError(
                f"{options.checkpoints / name} is no checkpoint", hint="name a folder that holds source/ and teacher/"
            )
    options_set = {name: getattr(options, name) for name in ("seeds", "arms", "steps", "batch", "lr")}
    chosen = {**(QUICK if options.quick else {}), **{name: v for name, v in options_set.items() if v is not None}}
    for name in ("seeds", "arms"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    if options.workers < 1:
        raise UsageError(f"workers cannot be {options.workers}", hint="--workers of at least 1")
    if chosen.get("arms") and "full" not in chosen["arms"]:
        chosen["arms"] = ("full", *chosen["arms"])
    setting = Setting(str(options.checkpoints.resolve()), **chosen)
    from transformers import AutoConfig

    sides = [setting.path(name) for name in ("source", "teacher")]
    check_vocabularies(*(AutoConfig.from_pretrained(side) for side in sides), *(tokenizer(side) for side in sides))
    return setting


def reproduce(setting: Setting, folder: Folder) -> tuple[Results, Tuning]:
    """Compute what is missing and collect all results."""
    checkpoint = folder.path / "mask"
    ends = folder.records([(name, evaluate, (setting, name)) for name in ("source", "teacher")])
    first = folder.jobs(setting, first_jobs(setting, str(checkpoint)))
    masks = folder.once("masks", lambda: _masks(setting, checkpoint, folder.registry))
    tuning_runs = folder.jobs(setting, tuning_jobs(setting, masks["opd"]))
    by_arm = {record["arm"]: record for record in (*first.values(), *tuning_runs.values())}
    tuning = Tuning(**folder.once("tuning", lambda: asdict(tune(setting, **masks, records=by_arm))))
    jobs = jobs_of(setting, tuning)
    records = folder.jobs(setting, jobs)
    runs = {arm: [records[job.name] for job in jobs if job.arm == arm] for arm in arms_of(setting)}
    times = [(f"time-{job.name}", time_steps, (setting, job, folder.registry)) for job in jobs[: len(runs)]]
    timed = folder.records(times, parallel=False)
    for job in jobs[: len(runs)]:
        for record in runs[job.arm]:
            record["step_seconds"] = timed[f"time-{job.name}"]["step_seconds"]
    return Results(ends["source"], ends["teacher"], runs), tuning


def _masks(setting: Setting, checkpoint: Path, registry: Path) -> dict[str, str]:
    rlvr = setting.path("rlvr")
    return {
        "opd": extract_mask(setting, checkpoint, registry),
        "rlvr": extract_mask(setting, rlvr, registry) if rlvr.is_dir() else "",
    }


def main() -> int:
    """Run everything and print the tables.

    Returns:
        The exit code: 1 if nothing was tested, 2 for a usage error.
    """
    options = parsed()
    # Read by libraries when worker processes first import them.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    try:
        setting = setting_of(options)
        with Folder(options.out, setting, options.workers) as folder:
            results, tuning = reproduce(setting, folder)
    except MaskregError as error:
        print(f"error: {error}\n{error.hint}", file=sys.stderr)
        return 2
    except NothingLearnedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = markdown(results, tuning, setting)
    write(options.out / "results.json", data(results, tuning, setting))
    docs = options.docs or options.out
    (docs / "retrain.md").write_text(text, encoding="utf-8")
    draw(results, docs / "retrain.svg")
    print(text)
    if not results.learned():
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
