"""Tests masked retraining: distills a small model on masks of other runs and trainers, and on control masks.

On-policy distillation of a 5 M parameter model that answers sums (2,048 tokens; reverse KL over the whole vocabulary on
the student's own samples, AdamW, bf16 weights with fp32 masters): from CHECKPOINTS/source toward CHECKPOINTS/teacher,
once on all coordinates and once on each mask. A mask is what a run changes visibly, that is, in bf16:
  OPD mask           of full runs of this very recipe, one for each mask seed
  SFT mask           of full runs on right answers instead, one for each mask seed
  external OPD mask  of CHECKPOINTS/opd, which another trainer made: one mask
and beside each are its controls:
  exponent-matched    random, as many coordinates of each tensor and each exponent of the source's weights
  random, as visible  random, as dense as it takes to end with as many visibly changed coordinates

Primary endpoints, fixed before the first run, on held-out problems, without sampling:
  KL         KL(model || teacher) over the vocabulary, mean over the tokens of right answers
  P(answer)  mean probability of the right answer and its end
Arms are compared by paired differences, of the same mask seed and training seed; the module ``statistics`` says how.

Tuning runs, with a seed that no arm has, choose the densities of random masks. The exit code is 1 if the full arm does
not beat the source by 5 paired standard deviations, or if the run that yields the mask changes no weight: then nothing
was tested. Every finished run is a file in the results folder: the same command resumes, and more seeds add to what is
there. Takes about half an hour of one core.

  scripts/reproduce/run CHECKPOINTS --out .reproduce
  scripts/reproduce/run CHECKPOINTS --out .reproduce --docs docs
  scripts/reproduce/run CHECKPOINTS --out .reproduce --seeds 0 1 2 3 --mask-seeds 100 103 104 105
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from maskreg.errors import MaskregError, NotFoundError, UsageError
from maskreg.train.retrain.prepare import check_tokenizers
from scripts.reproduce.arms import ARMS, jobs_of, missing, origins_of, shown_as_visible
from scripts.reproduce.folder import Folder, write
from scripts.reproduce.masks import NothingLearnedError, extract_mask
from scripts.reproduce.origins import ORIGINS
from scripts.reproduce.plot import draw
from scripts.reproduce.setting import Setting
from scripts.reproduce.statistics import Results
from scripts.reproduce.student import tokenizer
from scripts.reproduce.table import data, markdown
from scripts.reproduce.training import Job, evaluate, slug
from scripts.reproduce.tuning import Tuning, mask_jobs, tune, tuning_jobs

QUICK: dict[str, Any] = {
    "steps": 4,
    "batch": 16,
    "arms": ("full", "OPD mask", "OPD mask: exponent-matched", "OPD mask: random, as visible"),
    "seeds": (0,),
    "mask_seeds": (100,),
}


_ARMS_HELP = f"only these, and full; all of them: {'; '.join(ARMS)}"


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkpoints", type=Path, help="folder with source/, teacher/ and, for their arms, opd/ and rlvr/"
    )
    parser.add_argument("--out", type=Path, default=Path(".reproduce"), help="results folder (default .reproduce)")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write retrain.md and retrain.svg there, not in --out")
    parser.add_argument("--quick", action="store_true", help="4 steps of 16 prompts, 4 arms, 1 seed: a smoke test")
    parser.add_argument("--finished", action="store_true", help="start no run of an arm: tables of those that are done")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each (default 2)")
    parser.add_argument("--seeds", type=int, nargs="+", help="training seeds (default 0 1 2)")
    parser.add_argument("--mask-seeds", type=int, nargs="+", help="of the runs that give masks (default 100 103 104)")
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, "all"), metavar="ARM", help=_ARMS_HELP)
    parser.add_argument("--steps", type=int, help="of each run (default 60)")
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
    options_set = {name: getattr(options, name) for name in ("seeds", "mask_seeds", "arms", "steps", "batch", "lr")}
    chosen = {**(QUICK if options.quick else {}), **{name: v for name, v in options_set.items() if v is not None}}
    for name in ("seeds", "mask_seeds", "arms"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    if options.workers < 1:
        raise UsageError(f"workers cannot be {options.workers}", hint="--workers of at least 1")
    if "all" in chosen.get("arms", ()):
        chosen["arms"] = tuple(ARMS)
    elif chosen.get("arms") and "full" not in chosen["arms"]:
        chosen["arms"] = ("full", *chosen["arms"])
    setting = Setting(str(options.checkpoints.resolve()), **chosen)
    if absent := missing(setting):
        raise NotFoundError(
            f"{setting.path(absent)} is no checkpoint, and an arm needs its mask", hint="add it, or leave its arms out"
        )

    sides = [setting.path(name) for name in ("source", "teacher")]
    check_tokenizers(*(tokenizer(side) for side in sides))
    return setting


def reproduce(setting: Setting, folder: Folder, *, finished: bool = False) -> tuple[Results, Tuning]:
    """Compute what is missing and collect all results.

    Args:
        setting: of all runs.
        folder: with the runs that are done.
        finished: do not start runs of arms that are missing; masks and tuning runs are still computed.

    Raises:
        NotFoundError: there is no finished run of the full arm.
    """
    ends = folder.records([(name, evaluate, (setting, name)) for name in ("source", "teacher")])
    masks = _masks(setting, folder)
    visible = shown_as_visible(setting)
    measured = folder.jobs(setting, tuning_jobs(setting, masks, visible))
    tuning = tune(masks, visible, {record["arm"]: record for record in measured.values()})
    jobs = jobs_of(setting, tuning)
    records = folder.finished(jobs) if finished else folder.jobs(setting, jobs)
    return Results(ends["source"], ends["teacher"], runs_by_arm(jobs, records), len(jobs)), tuning


def runs_by_arm(jobs: Sequence[Job], records: Mapping[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records of each arm that has any, in the order of tables; only of seeds with which the full arm was trained.

    Raises:
        NotFoundError: there is no record of the full arm.
    """
    seeds = {job.seed for job in jobs if job.arm == "full" and job.name in records}
    if not seeds:
        raise NotFoundError("no run of the full arm is finished", hint="leave --finished out to train it")
    usable = [job for job in jobs if job.name in records and job.seed in seeds]
    return {
        arm: [records[job.name] for job in usable if job.arm == arm]
        for arm in ARMS
        if any(job.arm == arm for job in usable)
    }


def _masks(setting: Setting, folder: Folder) -> dict[str, dict[str, str]]:
    """Digests of masks by origin and seed; what gives them is trained first."""
    jobs = mask_jobs(setting, origins_of(setting), folder.path / "masks")
    folder.jobs(setting, list(jobs.values()))
    checkpoints: dict[tuple[str, int | None], Path] = {key: Path(job.checkpoint) for key, job in jobs.items()}
    for origin in origins_of(setting):
        if not ORIGINS[origin].trained:
            checkpoints[origin, None] = setting.path(ORIGINS[origin].checkpoint)
    masks: dict[str, dict[str, str]] = {origin: {} for origin in origins_of(setting)}
    for (origin, seed), checkpoint in checkpoints.items():
        extracted = partial(extract_mask, setting, checkpoint, folder.registry)
        masks[origin][str(seed)] = folder.once(f"masks/{slug(f'{origin}-{seed}')}", extracted)["digest"]
    return masks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the tables.

    Returns:
        The exit code: 1 if nothing was tested, 2 for a usage error.
    """
    options = parsed(arguments)
    # Read by libraries when worker processes first import them.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    try:
        setting = setting_of(options)
        with Folder(options.out, setting, options.workers) as folder:
            results, tuning = reproduce(setting, folder, finished=options.finished)
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
