"""RAM: average changes that several updates share, and keep whole, or enlarge, those that one has alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.methods.arithmetic import kept, replace
from maskreg.flow.merge.methods.base import Floats, Method, Setting, Sums, Tile

_PAPER = 'X. Yuan et al., "Behavior Knowledge Merge in Reinforced Agentic Models", arXiv 2601.13572'
_EPSILON = Setting(1e-5, "a change counts when it is larger, as published; 0 for every change of bits", 0.0)


def _changed(tile: Tile) -> list[npt.NDArray[np.bool_]]:
    """Which coordinates each update changes by more than the setting ``epsilon``."""
    return [np.abs(update) > np.float32(tile.settings["epsilon"]) for update in tile.updates]


def _mean_of_changed(tile: Tile, alone: Sequence[float]) -> Floats:
    """The mean over the updates that change a coordinate; a change that one has alone is multiplied by its factor."""
    masks = _changed(tile)
    count = np.sum(masks, axis=0, dtype=np.int32)
    over, unique = np.zeros_like(tile.updates[0]), count == 1
    for update, mask, factor in zip(tile.updates, masks, alone, strict=True):
        part = kept(update, mask)
        if factor != 1:
            replace(part.view(np.uint32), (part * np.float32(factor)).view(np.uint32), unique)
        over += part
    return over / np.maximum(count, 1).astype(np.float32)


@Method(
    "ram",
    summary="average shared changes, keep unique ones whole",
    paper=_PAPER,
    settings={"epsilon": _EPSILON},
    weighted=False,
)
def ram(tile: Tile) -> Floats:
    """The mean over the updates that change a coordinate."""
    return _mean_of_changed(tile, [1.0] * len(tile.updates))


def _shared_and_unique(tile: Tile) -> Sums:
    """For each update, how many changes it shares and how many it has alone."""
    masks = _changed(tile)
    count = np.sum(masks, axis=0, dtype=np.int32)
    return np.array([np.count_nonzero(mask & side) for mask in masks for side in (count > 1, count == 1)], np.float64)


@Method(
    "ram+",
    summary="average shared changes, enlarge unique ones by how much is shared",
    paper=_PAPER,
    settings={
        "epsilon": _EPSILON,
        "r": Setting(0.1, "how much larger unique changes become", 0.0),
        "alpha": Setting(0.2, "the largest ratio of shared to unique changes that counts", 0.0),
        "scope": Setting(
            "model", "what the ratio is of: the model, as published, or each tensor", words=("model", "tensor")
        ),
    },
    weighted=False,
    measure=_shared_and_unique,
    scope="model",
)
def ram_plus(tile: Tile) -> Floats:
    """The mean of shared changes, and unique ones times 1 + r min(shared / unique, alpha) of their update."""
    r, alpha, sums = tile.settings["r"], tile.settings["alpha"], tile.known.sums.tolist()
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return _mean_of_changed(
        tile, [1 + r * (min(shared / unique, alpha) if unique else 0.0) for shared, unique in pairs]
    )
