"""Tests masked retraining through TRL, with a reward: ``python -m scripts.reproduce.grpo CHECKPOINTS``.

Each run is one ``maskreg retrain --recipe grpo`` of CHECKPOINTS/source on sums: 48 prompts with 8 samples each a step,
24 steps, AdamW with a learning rate of 5e-6, reward 1 for the right answer. The endpoint is the probability of the
right answer on held-out problems, the expected reward. Arms, with seeds 0, 1 and 2:

  full                everything
  GRPO mask           what a full run with seed 100, 103 or 104 changes visibly
  exponent-matched    its control of that kind
  random, as visible  random coordinates, so many that as many change visibly as on the mask

Finished runs are kept in the results folder. Takes a quarter of an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from scripts.reproduce.setting import problems
from scripts.reproduce.statistics import Estimate
from scripts.reproduce.student import lessons, load, measure

PAIRS = {0: 100, 1: 103, 2: 104}
"""The seed of the mask for each training seed."""

CONFIG = {
    "max_steps": 24, "num_generations": 8, "max_completion_length": 4, "learning_rate": 5e-6, "beta": 0,
    "lr_scheduler_type": "constant", "warmup_steps": 0,
}  # fmt: skip
BATCH = 384


def right(prompts: Sequence[str], completions: Sequence[str], **_: object) -> list[float]:
    """The reward."""
    known = {problem.prompt: problem.answer for part in problems() for problem in part}
    return [float(said.strip() == known[prompt]) for prompt, said in zip(prompts, completions, strict=True)]


class Runs:
    """Runs of a results folder."""

    def __init__(self, checkpoints: Path, out: Path) -> None:
        """Write the prompts, and a target in which every coordinate differs, whose mask has all of them."""
        self.source, self.out = checkpoints / "source", out
        out.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"prompt": problem.prompt}) for problem in problems()[0]]
        (out / "prompts.jsonl").write_text("\n".join(lines) + "\n")
        if not (out / "registry").exists():
            model = load(self.source, torch.bfloat16)
            for parameter in model.parameters():
                parameter.data.view(torch.int16).bitwise_xor_(1)
            model.save_pretrained(out / "other")
            self.maskreg("extract", self.source, out / "other", "--name", "all", "--mask-only")

    def maskreg(self, *arguments: object) -> dict[str, Any]:
        """What a command prints as JSON."""
        environment = {**os.environ, "MASKREG_HOME": str(self.out / "registry"), "OMP_NUM_THREADS": "1"}
        line = [sys.executable, "-m", "maskreg", *map(str, arguments), "--json"]
        said = subprocess.run(line, env=environment, check=True, capture_output=True, text=True).stdout
        found: dict[str, Any] = json.loads(said)
        return found

    def train(self, name: str, seed: int, *what: object) -> dict[str, float]:
        """Train and measure, unless that was done: densities, and what :meth:`measure` gives."""
        file = self.out / f"{name}-{seed}.json"
        if not file.exists():
            options = [text for key, value in {**CONFIG, "seed": seed}.items() for text in ("-c", f"{key}={value}")]
            common = ["--recipe", "grpo", "--reward", f"{__spec__.name}:right", "--data", self.out / "prompts.jsonl"]
            folder = self.out / f"{name}-{seed}"
            common += ["--source", self.source, "--batch-size", BATCH, "-o", folder, "--force"]
            run = self.maskreg("retrain", *what, *common, *options)
            shares = {"density": run["density"], "visible": run["visible_density"]}
            file.write_text(json.dumps({**self.measure(folder / "model"), **shares}))
        record: dict[str, float] = json.loads(file.read_text())
        return record

    def measure(self, path: Path) -> dict[str, float]:
        """P(answer) and greedy accuracy of a checkpoint on held-out problems."""
        model = load(path, torch.float32)
        return measure(model, model, lessons(self.source)[1], tokens=4, seed=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, help="folder with source/")
    parser.add_argument("--out", type=Path, default=Path(".reproduce-grpo"), help="results folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs(options.checkpoints.resolve(), options.out.resolve())
    arms: dict[str, dict[tuple[int | None, int], dict[str, float]]] = {}
    for seed, own in PAIRS.items():
        ref = f"mask-{own}"
        runs.train("mask", own, "--control", "full", "--name", ref)
        full = runs.train("full", seed, "--control", "full")
        masked = runs.train("masked", seed, ref)
        density = masked["visible"] / full["visible"]
        runs.maskreg(
            "baseline", "all", "--kind", "subset", "--density", density, "--seed", seed, "--name", "r", "--force"
        )
        for name, record in {
            "full": full,
            "GRPO mask": masked,
            "exponent-matched": runs.train(
                "matched", seed, ref, "--control", "exponent-matched", "--control-seed", seed
            ),
            "random, as visible": runs.train("random", seed, "random"),
        }.items():
            arms.setdefault(name, {})[own, seed] = record
    source = runs.measure(runs.source)
    print(f"source: P(answer) {source['p']:.4f}, greedy {source['accuracy']:.1%}\n")
    print("| trained on | density | visibly changed | P(answer) | greedy | % of full's gain | P - P of GRPO mask |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, records in arms.items():
        means = [fmean(one[key] for one in records.values()) for key in ("density", "visible", "p", "accuracy")]
        gains = {key: (r["p"] - source["p"]) / (arms["full"][key]["p"] - source["p"]) for key, r in records.items()}
        share = Estimate.of({key: 100 * gain for key, gain in gains.items()})
        apart = Estimate.of({key: r["p"] - arms["GRPO mask"][key]["p"] for key, r in records.items()})
        intervals = f"{share.mean:.1f} ± {share.half:.1f} | {apart.mean:+.4f} ± {apart.half:.4f}"
        density, visible, p, greedy = means
        print(f"| {name} | {density:.3f} | {visible:.3f} | {p:.4f} | {greedy:.1%} | {intervals} |")


if __name__ == "__main__":
    main()
