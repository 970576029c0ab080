"""Linear: the weighted average of models that were trained from one source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.base import Floats, Method, Settings, Tile
from maskreg.flow.merge.fusing import total, weighted


def merge(tile: Tile) -> Floats:
    """The sum of weighted updates over the sum of weights."""
    return total(weighted(tile.updates, tile.weights)) / np.float32(sum(tile.weights))


def check(weights: Sequence[float], settings: Settings) -> None:
    """Refuse weights that cancel.

    Raises:
        UsageError: they do.
    """
    if not np.float32(sum(weights)):
        raise UsageError("the weights add up to 0, and the average divides by their sum", hint="use task-arithmetic")


METHOD = Method(
    name="linear",
    paper='M. Wortsman et al., "Model soups", ICML 2022, arXiv 2203.05482',
    summary="the weighted average of the updates",
    merge=merge,
    check=check,
)
"""The line of the table of methods."""
