"""Weighted sums: the average of models that were trained from one source, and task arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import scaled, total, weighted
from maskreg.flow.merge.methods.base import LAMBDA, Floats, Method, Settings, Tile


def require_sum(weights: Sequence[float], settings: Settings) -> None:
    """Refuse weights that cancel."""
    if not np.float32(sum(weights)):
        raise UsageError("the weights add up to 0, and the average divides by their sum", hint="use task-arithmetic")


@Method(
    "linear",
    summary="the weighted average of the updates",
    paper='M. Wortsman et al., "Model soups", ICML 2022, arXiv 2203.05482',
    check=require_sum,
)
def linear(tile: Tile) -> Floats:
    """The sum of weighted updates over the sum of weights."""
    return total(weighted(tile.updates, tile.weights)) / np.float32(sum(tile.weights))


@Method(
    "task-arithmetic",
    summary="the weighted sum of the updates; a negative weight subtracts",
    paper='G. Ilharco et al., "Editing models with task arithmetic", ICLR 2023, arXiv 2212.04089',
    settings={"lambda": LAMBDA},
)
def task_arithmetic(tile: Tile) -> Floats:
    """The sum of weighted updates, times lambda."""
    return scaled(total(weighted(tile.updates, tile.weights)), tile.settings)
