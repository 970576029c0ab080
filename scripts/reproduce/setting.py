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

TUNING_SEED = 101
"""Seed of the tuning runs; no arm has it."""

SAMPLES_SEED = 102
"""Seed of the completions on which ``kl_samples`` is measured; the same for all arms."""

RESERVED_SEEDS = {TUNING_SEED: "the tuning runs", SAMPLES_SEED: "the samples that are measured"}
"""What has a seed that neither an arm nor a mask has."""


@dataclass(frozen=True)
class Setting:
    """Everything that determines the results; stored beside them.

    Attributes:
        checkpoints: folder with ``source``, ``teacher`` and, for the arms that need them, ``opd`` and ``rlvr``.
        seeds: training seeds; every arm is trained with each.
        mask_seeds: of the runs that give masks; each mask is trained on with a training seed of its own.
        arms: names of arms; empty for those that belong to the claim.
        steps: of each run.
        batch: prompts in a step.
        tokens: of a completion, at most.
        lr: of AdamW.
        weight_decay: of AdamW.
    """

    checkpoints: str
    seeds: tuple[int, ...] = (0, 1, 2)
    mask_seeds: tuple[int, ...] = (100, 103, 104)
    arms: tuple[str, ...] = ()
    steps: int = 60
    batch: int = 96
    tokens: int = 4
    lr: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what would fail later, or count for more than it is."""
        for name, least in (("steps", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} cannot be {getattr(self, name)}", hint=f"--{name} of at least {least}")
        if not (math.isfinite(self.lr) and self.lr >= 0):
            raise UsageError(f"lr cannot be {self.lr}", hint="--lr of at least 0")
        for name, hint in (("seeds", "--seeds 0 1 2"), ("mask_seeds", "--mask-seeds 100 103 104")):
            seeds = getattr(self, name)
            if not seeds:
                raise UsageError(f"there are no {name.replace('_', ' ')}", hint=hint)
            for seed in seeds:
                if not 0 <= seed < 1 << 63:
                    raise UsageError(f"seed {seed} is not in 0..2^63-1", hint=hint)
                if seed in RESERVED_SEEDS:
                    raise UsageError(f"seed {seed} belongs to {RESERVED_SEEDS[seed]}", hint=hint)
            if len(set(seeds)) < len(seeds):
                raise UsageError("a seed is given twice, which would count one run as two", hint="give each seed once")
        if len(self.seeds) != len(self.mask_seeds):
            raise UsageError(
                f"{len(self.seeds)} training seeds and {len(self.mask_seeds)} mask seeds make no pairs",
                hint="give as many --seeds as --mask-seeds",
            )
        if shared := sorted(set(self.seeds) & set(self.mask_seeds)):
            raise UsageError(
                f"seed {shared[0]} would train on the mask of its own run",
                hint="give --seeds and --mask-seeds that have no seed in common",
            )

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
