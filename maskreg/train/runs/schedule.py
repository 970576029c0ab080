"""How the learning rate moves over a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""Share of the full rate by the share of the steps after warmup that are done; by the word that options use."""


def rate(shape: str, lr: float, *, step: int, steps: int, warmup: int = 0) -> float:
    """Learning rate of one step.

    Warmup rises in equal parts, so that its last step has the full rate; the step after it begins the shape, which
    would reach its end one step after the last.

    Args:
        shape: one of :data:`SHAPES`.
        lr: the full rate.
        step: from 0.
        steps: of the whole run.
        warmup: steps of rising.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * SHAPES[shape]((step - warmup) / max(steps - warmup, 1))
