"""Averages and sums: weighted sums of updates, and Model Stock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import scaled, total, update_dots, weighted
from maskreg.flow.merge.methods.base import LAMBDA, MANY, Floats, Method, Settings, Tile


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


@Method(
    "model-stock",
    summary="go towards the average as far as the angles between the updates of a tensor suggest",
    paper='D.-H. Jang et al., "Model Stock", ECCV 2024, arXiv 2403.19522',
    operands=(2, MANY),
    weighted=False,
    measure=update_dots,
)
def model_stock(tile: Tile) -> Floats:
    """The average update times t = n cos / (1 + (n - 1) cos), with the mean cosine between two updates."""
    count = len(tile.updates)
    # How much of the average to take; 0 where it is not defined.
    dots = tile.known.sums.reshape(count, count)
    norms = np.sqrt(np.diagonal(dots))
    products = np.outer(norms, norms)
    cosines = np.divide(dots, products, out=np.zeros_like(dots), where=products > 0)
    cosine = float(np.clip(cosines[np.triu_indices(count, 1)], -1, 1).mean())
    below = 1 + (count - 1) * cosine
    return total(tile.updates) / np.float32(count) * np.float32(count * cosine / below if abs(below) > 1e-6 else 0.0)
