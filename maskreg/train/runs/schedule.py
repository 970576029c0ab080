"""Learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""By name: share of the full rate, as a function of the share of the steps after warmup that are done."""


def rate(shape: str, lr: float, *, step: int, steps: int, warmup: int = 0) -> float:
    """Learning rate of one step.

    Warmup rises linearly to the full rate at its last step. The shape begins with the step after, and would reach its
    end one step after the last.

    Args:
        shape: one of :data:`SHAPES`.
        lr: the full rate.
        step: from 0.
        steps: of the whole run.
        warmup: steps of linear rise.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * SHAPES[shape]((step - warmup) / max(steps - warmup, 1))
