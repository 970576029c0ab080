"""RAM+: as RAM, with changes that one update has alone made larger the more it shares of the others."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Setting, Sums, Tile
from maskreg.flow.merge.ram import EPSILON, changed, mean_of_changed


def merge(tile: Tile) -> Floats:
    """The mean of shared changes, and unique ones times 1 + r min(shared / unique, alpha) of their update."""
    return mean_of_changed(tile, factors(tile.known.sums, tile.settings["r"], tile.settings["alpha"]))


def measure(tile: Tile) -> Sums:
    """For each update, how many changes it shares and how many it has alone."""
    masks = changed(tile)
    count = np.sum(masks, axis=0, dtype=np.int32)
    return np.array([np.count_nonzero(mask & side) for mask in masks for side in (count > 1, count == 1)], np.float64)


def factors(sums: Sums, r: float, alpha: float) -> list[float]:
    """Factors of unique changes.

    Args:
        sums: shared and unique changes of each update in turn.
        r: how much larger unique changes become per share.
        alpha: the largest share that counts.
    """
    pairs = zip(sums[::2].tolist(), sums[1::2].tolist(), strict=True)
    return [1 + r * (min(shared / unique, alpha) if unique else 0.0) for shared, unique in pairs]


METHOD = Method(
    name="ram+",
    paper='X. Yuan et al., "Behavior Knowledge Merge in Reinforced Agentic Models", arXiv 2601.13572',
    summary="average shared changes, enlarge unique ones by how much is shared",
    merge=merge,
    settings={
        "epsilon": EPSILON,
        "r": Setting(0.1, "how much larger unique changes become", 0.0),
        "alpha": Setting(0.2, "the largest ratio of shared to unique changes that counts", 0.0),
        "scope": Setting(
            "model", "what the ratio is of: the model, as published, or each tensor", words=("model", "tensor")
        ),
    },
    weighted=False,
    measure=measure,
    scope="model",
)
"""The line of the table of methods."""
