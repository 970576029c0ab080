"""The setting of all runs, fixed before the first one: problems, steps and learning rates."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskreg.errors import UsageError

LIMIT = 20
"""Numbers in problems are smaller."""

TRAINED_SHARE = 0.6
"""Share of problems to train on; the others are held out."""

MASK_SEED = 100
"""Seed of the full run that gives the OPD mask; no arm has it."""

TUNING_SEED = 101
"""Seed of the tuning runs; no arm has it."""

SAMPLES_SEED = 102
"""Seed of the completions on which ``kl_samples`` is measured; the same for all arms."""

RESERVED_SEEDS = {
    MASK_SEED: "the run that gives the OPD mask",
    TUNING_SEED: "the tuning runs",
    SAMPLES_SEED: "the samples that are measured",
}
"""What has a seed that no arm may have."""


@dataclass(frozen=True)
class Setting:
    """Everything that determines the results; stored beside them.

    Attributes:
        checkpoints: folder with ``source``, ``teacher`` and, optionally, ``rlvr``.
        seeds: training seeds; every arm is trained with each.
        arms: names of arms; empty for all.
        steps: of each run.
        batch: prompts in a step.
        tokens: of a completion, at most.
        lr: of AdamW.
        weight_decay: of AdamW.
        sgd_rates: learning rates of SGD to choose from.
    """

    checkpoints: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    arms: tuple[str, ...] = ()
    steps: int = 100
    batch: int = 96
    tokens: int = 4
    lr: float = 1e-6
    weight_decay: float = 0.01
    sgd_rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)

    def __post_init__(self) -> None:
        """Refuse what would fail later, or count for more than it is.

        Raises:
            UsageError: a number is out of range, or seeds are not independent of each other.
        """
        for name, least in (("steps", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} cannot be {getattr(self, name)}", hint=f"--{name} of at least {least}")
        if not (math.isfinite(self.lr) and self.lr >= 0):
            raise UsageError(f"lr cannot be {self.lr}", hint="--lr of at least 0")
        for seed in self.seeds:
            if not 0 <= seed < 1 << 63:
                raise UsageError(f"seed {seed} is not in 0..2^63-1", hint="--seeds 0 1 2 3 4")
            if seed in RESERVED_SEEDS:
                raise UsageError(f"seed {seed} is that of {RESERVED_SEEDS[seed]}", hint="--seeds 0 1 2 3 4")
        if len(set(self.seeds)) < len(self.seeds):
            raise UsageError("a seed is given twice, which would count one run as two", hint="give each seed once")

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the identity of the problems, which are a part of the setting too."""
        return {**json.loads(json.dumps(asdict(self))), "problems": problems_digest()}

    def path(self, name: str) -> Path:
        """One of the checkpoints."""
        return Path(self.checkpoints) / name


@dataclass(frozen=True)
class Problem:
    """A prompt and its only right answer."""

    prompt: str
    answer: str


def problems() -> tuple[list[Problem], list[Problem]]:
    """All sums and all non-negative differences of numbers below ``LIMIT``: training problems and held-out ones.

    A sum and its commuted twin are on one side of the split, as ``# 3+5=`` and ``# 5+3=``: who has learned one knows
    the other. These pairs, and differences, are split in the order of the SHA-256 of their first prompt, so the split
    depends on nothing else.
    """
    numbers = range(LIMIT)
    groups = [
        [Problem(f"# {x}+{y}=", str(a + b)) for x, y in dict.fromkeys([(a, b), (b, a)])]
        for a in numbers
        for b in numbers
        if a <= b
    ]
    groups += [[Problem(f"# {a}-{b}=", str(a - b))] for a in numbers for b in numbers if a >= b]
    groups.sort(key=lambda group: hashlib.sha256(group[0].prompt.encode()).digest())
    count = round(TRAINED_SHARE * sum(map(len, groups)))
    training: list[Problem] = []
    held_out: list[Problem] = []
    for group in groups:
        (training if len(training) < count else held_out).extend(group)
    return training, held_out


def problems_digest() -> str:
    """sha256 of the training problems and the held-out ones."""
    sides = [[problem.prompt for problem in side] for side in problems()]
    return f"sha256:{hashlib.sha256(json.dumps(sides).encode()).hexdigest()}"


def batches(count: int, size: int, steps: int, seed: int) -> list[list[int]]:
    """Indices of the problems of each step: all ``count`` in random order, repeatedly."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    epochs = -(-size * steps // count)
    stream = np.concatenate([rng.permutation(count) for _ in range(epochs)])
    return [stream[step * size : (step + 1) * size].tolist() for step in range(steps)]
