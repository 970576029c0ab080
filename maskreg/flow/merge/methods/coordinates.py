"""Methods by coordinate: a change counts by how many updates make it, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import elected, kept, mean_of_moved, replace
from maskreg.flow.merge.methods.base import Floats, Method, Setting, Settings, Tile
from maskreg.words import counted


@Method(
    "union",
    summary="every change that any update makes",
    settings={
        "conflict": Setting(
            "first",
            "where several change a coordinate: the first artifact's change, their mean, or the mean of the changes "
            "with the elected sign",
            words=("first", "mean", "sign"),
        )
    },
    weighted=False,
)
def union(tile: Tile) -> Floats:
    """A change that one update has alone, and what the setting ``conflict`` makes of the others."""
    conflict = tile.settings["conflict"]
    if conflict == "sign":
        return elected(tile.updates, [1.0] * len(tile.updates))
    if conflict == "mean":
        return mean_of_moved(tile.updates)[0]
    result = tile.updates[-1].copy()
    for update in reversed(tile.updates[:-1]):
        replace(result.view(np.uint32), update.view(np.uint32), update != 0)
    return result


def _require_as_many(weights: Sequence[float], settings: Settings) -> None:
    if settings["k"] > len(weights):
        raise UsageError(
            f"k is {settings['k']}, and only {counted(len(weights), 'artifact', 'is')} merged",
            hint=f"choose 1 to {len(weights)}: --set k={len(weights)}",
        )


@Method(
    "consensus",
    summary="the mean of changes that at least k updates make",
    settings={"k": Setting(2, "how many updates must have moved a coordinate", 1)},
    weighted=False,
    check=_require_as_many,
)
def consensus(tile: Tile) -> Floats:
    """The mean over the updates that moved a coordinate, where they are enough."""
    mean, count = mean_of_moved(tile.updates)
    return kept(mean, count >= tile.settings["k"])
