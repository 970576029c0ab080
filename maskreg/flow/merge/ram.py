"""RAM: average changes that several updates share, and keep whole those that one has alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.base import Floats, Method, Setting, Tile
from maskreg.flow.merge.numbers import kept, replace

EPSILON = Setting(1e-5, "a change counts when it is larger; 0 for every change of bits", 0.0)
"""The published threshold."""


def merge(tile: Tile) -> Floats:
    """The mean over those updates that change a coordinate."""
    return mean_of_changed(tile, [1.0] * len(tile.updates))


def changed(tile: Tile) -> list[npt.NDArray[np.bool_]]:
    """Which coordinates each update changes by more than the setting ``epsilon``."""
    return [np.abs(update) > np.float32(tile.settings["epsilon"]) for update in tile.updates]


def mean_of_changed(tile: Tile, alone: list[float]) -> Floats:
    """The mean over the updates that change a coordinate; a change that one has alone is multiplied.

    Args:
        tile: of the merge.
        alone: for each update, the factor of what it alone changes.
    """
    masks = changed(tile)
    count = np.sum(masks, axis=0, dtype=np.int32)
    over, unique = np.zeros_like(tile.updates[0]), count == 1
    for update, mask, factor in zip(tile.updates, masks, alone, strict=True):
        part = kept(update, mask)
        if factor != 1:
            replace(part.view(np.uint32), (part * np.float32(factor)).view(np.uint32), unique)
        over += part
    return over / np.maximum(count, 1).astype(np.float32)


METHOD = Method(
    name="ram",
    paper='X. Yuan et al., "Behavior Knowledge Merge in Reinforced Agentic Models", arXiv 2601.13572',
    summary="average shared changes, keep unique ones whole",
    merge=merge,
    settings={"epsilon": EPSILON},
    weighted=False,
)
"""The line of the table of methods."""
