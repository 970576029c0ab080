"""Consensus: the mean change of coordinates that at least k updates moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.base import Floats, Method, Setting, Settings, Tile
from maskreg.flow.merge.fusing import total
from maskreg.flow.merge.numbers import kept
from maskreg.words import counted


def merge(tile: Tile) -> Floats:
    """The mean over those that moved a coordinate, where they are enough."""
    count = np.sum([update != 0 for update in tile.updates], axis=0, dtype=np.int32)
    mean = total(tile.updates) / np.maximum(count, 1).astype(np.float32)
    return kept(mean, count >= tile.settings["k"])


def check(weights: Sequence[float], settings: Settings) -> None:
    """Refuse to ask for more updates than there are.

    Raises:
        UsageError: there are fewer.
    """
    if settings["k"] > len(weights):
        raise UsageError(
            f"k is {settings['k']}, and only {counted(len(weights), 'artifact', 'is')} merged",
            hint=f"choose 1 to {len(weights)}: --set k={len(weights)}",
        )


METHOD = Method(
    name="consensus",
    paper="",
    summary="the mean change of coordinates that at least k updates moved",
    merge=merge,
    settings={"k": Setting(2, "how many updates must have moved a coordinate", 1)},
    weighted=False,
    check=check,
)
"""The line of the table of methods."""
