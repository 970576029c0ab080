"""What is trained on what, and for how long: fixed before the first run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 20
"""Numbers in problems are below it."""

TRAINED_SHARE = 0.6
"""Of all problems; the others are held out."""

MASK_SEED = 100
"""Of the full run that gives the OPD mask; no arm has it."""

TUNING_SEED = 101
"""Of the runs that choose learning rates and the density of the thinned mask; no arm has it."""

SAMPLES_SEED = 102
"""Of the completions on which KL is measured beside the primary endpoints; the same for all arms."""


@dataclass(frozen=True)
class Setting:
    """Everything that decides the results; kept beside them.

    Attributes:
        checkpoints: folder with ``source`` and ``teacher``, and perhaps ``rlvr``.
        seeds: training seeds; every arm is trained with each.
        arms: names of arms, or empty for all.
        steps: of each run.
        batch: prompts a step.
        tokens: that a completion has at most.
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
    """A prompt and the one right answer."""

    prompt: str
    answer: str


def problems() -> tuple[list[Problem], list[Problem]]:
    """All sums, and all differences that are not negative, of numbers below ``LIMIT``: to train on, and held out.

    The order is that of the prompts' SHA-256, so that the split depends on nothing else.
    """
    numbers = range(LIMIT)
    every = [Problem(f"# {a}+{b}=", str(a + b)) for a in numbers for b in numbers]
    every += [Problem(f"# {a}-{b}=", str(a - b)) for a in numbers for b in numbers if a >= b]
    every.sort(key=lambda problem: hashlib.sha256(problem.prompt.encode()).digest())
    trained = round(TRAINED_SHARE * len(every))
    return every[:trained], every[trained:]


def batches(count: int, size: int, steps: int, seed: int) -> list[list[int]]:
    """Numbers of the problems of each step: all ``count`` in an order of chance, again and again."""
    chance = np.random.Generator(np.random.Philox(key=seed))
    epochs = -(-size * steps // count)
    stream = np.concatenate([chance.permutation(count) for _ in range(epochs)])
    return [stream[step * size : (step + 1) * size].tolist() for step in range(steps)]
