"""The setting of all runs, fixed before the first one: problems, steps and learning rates."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

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

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

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

    Problems are split in the order of the SHA-256 of their prompts, so the split depends on nothing else.
    """
    numbers = range(LIMIT)
    every = [Problem(f"# {a}+{b}=", str(a + b)) for a in numbers for b in numbers]
    every += [Problem(f"# {a}-{b}=", str(a - b)) for a in numbers for b in numbers if a >= b]
    every.sort(key=lambda problem: hashlib.sha256(problem.prompt.encode()).digest())
    count = round(TRAINED_SHARE * len(every))
    return every[:count], every[count:]


def batches(count: int, size: int, steps: int, seed: int) -> list[list[int]]:
    """Indices of the problems of each step: all ``count`` in random order, repeatedly."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    epochs = -(-size * steps // count)
    stream = np.concatenate([rng.permutation(count) for _ in range(epochs)])
    return [stream[step * size : (step + 1) * size].tolist() for step in range(steps)]
