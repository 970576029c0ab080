"""Tests masked retraining: TRL trains a small model on masks of other runs and trainers, and on control masks.

Each run is one `maskreg retrain` of a 5 M parameter model that answers sums (2,048 tokens), CHECKPOINTS/source, by
OPD (on-policy distillation from CHECKPOINTS/teacher, 60 steps of 96 prompts), SFT (right answers, likewise) or GRPO
(reward 1 for the right answer, 24 steps of 48 prompts with 8 samples each, learning rate 5e-6; elsewhere it is 1e-6).
Late OPD starts from the end of an OPD run. Primary endpoints, on held-out problems: KL to the teacher for OPD, negative
log-likelihood of right answers for SFT, probability of the right answer for GRPO.

A mask is what a full run changes visibly, that is, in bf16; runs for masks and runs on masks have different seeds.
Controls are kinds of `maskreg baseline`, and random masks that end with as many visibly changed coordinates. Two arms
train everything, with gradients projected onto 16 directions of each matrix: early ones of another run (GEO), or random
ones. Arms of one training seed get the same problems in the same order, and generators in the same state.

Every finished run is kept in the results folder: the same command resumes. Takes some 100 minutes of one core.

  scripts/reproduce/run CHECKPOINTS --out .reproduce
  scripts/reproduce/run CHECKPOINTS --out .reproduce --docs docs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from maskreg.errors import MaskregError
from scripts.reproduce.arms import FAMILIES, PAIRS
from scripts.reproduce.plot import draw
from scripts.reproduce.runs import Record, Runs
from scripts.reproduce.statistics import Results
from scripts.reproduce.table import markdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the tables.

    Returns:
        The exit code: 1 if a full arm does not beat its start, so that nothing was tested, 2 for an error.
    """
    parser = argparse.ArgumentParser(
        prog="scripts/reproduce/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="folder with source/, teacher/ and opd/")
    parser.add_argument("--out", type=Path, default=Path(".reproduce"), help="results folder (default .reproduce)")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write retrain.md and retrain.svg there, not in --out")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=[*FAMILIES], help="only these")
    parser.add_argument("--quick", action="store_true", help="2 steps a run, 2 seeds: a smoke test")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        runs = Runs(options.checkpoints, options.out / "quick" if options.quick else options.out, quick=options.quick)
        results = collect(runs, options.families, list(PAIRS)[: 2 if options.quick else None])
    except MaskregError as error:
        print(f"error: {error}\n{error.hint}", file=sys.stderr)
        return 2
    text = markdown(results)
    docs = options.docs or options.out
    (docs / "retrain.md").write_text(text, encoding="utf-8")
    draw(results, docs / "retrain.svg")
    print(text)
    untested = [name for name, one in results.items() if not one.learned()]
    if untested:
        print(
            f"error: full runs do not beat their start by 5 standard deviations: {', '.join(untested)}", file=sys.stderr
        )
    return 1 if untested else 0


def collect(runs: Runs, families: Sequence[str], seeds: Sequence[int]) -> dict[str, Results]:
    """The figures of all arms by family."""
    found: dict[str, dict[str, dict[int, Record]]] = {
        name: {arm: {} for arm in FAMILIES[name].arms()} for name in families
    }
    for seed in seeds:
        for name, arms in found.items():
            for arm, figures in arms.items():
                figures[seed] = runs.arm(name, arm, seed)
    return {name: Results(FAMILIES[name], runs.start_figures(name), arms) for name, arms in found.items()}


if __name__ == "__main__":
    sys.exit(main())
