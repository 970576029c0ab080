"""Union: every coordinate that any update moved, with a rule for those that several moved."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Setting, Tile
from maskreg.flow.merge.fusing import elected, total
from maskreg.flow.merge.numbers import replace


def merge(tile: Tile) -> Floats:
    """A change that one update has alone, and what the setting ``conflict`` makes of the others."""
    conflict = tile.settings["conflict"]
    if conflict == "sign":
        return elected(tile.updates, [1.0] * len(tile.updates))
    if conflict == "mean":
        count = np.sum([update != 0 for update in tile.updates], axis=0, dtype=np.int32)
        return total(tile.updates) / np.maximum(count, 1).astype(np.float32)
    result = tile.updates[-1].copy()
    for update in reversed(tile.updates[:-1]):
        replace(result.view(np.uint32), update.view(np.uint32), update != 0)
    return result


METHOD = Method(
    name="union",
    paper="",
    summary="every change that any update makes",
    merge=merge,
    settings={
        "conflict": Setting(
            "first",
            "where several change a coordinate: the first artifact's change, their mean, or the mean of those with the "
            "elected sign",
            words=("first", "mean", "sign"),
        )
    },
    weighted=False,
)
"""The line of the table of methods."""
