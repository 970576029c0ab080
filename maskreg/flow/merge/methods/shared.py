"""What updates share: a change counts by how many updates make it, or by how far they differ there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import agreeing, elected, is_positive, kept, mean_of_moved, replace, total
from maskreg.flow.merge.methods.base import MANY, Floats, Method, Setting, Settings, Sums, Tile
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
            hint=f"choose 1 to {len(weights)}",
            options={"settings": {"k": len(weights)}},
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


def _variance(tile: Tile) -> Floats:
    mean = total(tile.updates) / np.float32(len(tile.updates))
    return total([np.square(update - mean) for update in tile.updates]) / np.float32(len(tile.updates))


def _ranks(differing: int, settings: Settings) -> tuple[int, ...]:
    # No threshold where all are selected.
    return (int(differing * settings["density"]),) if settings["density"] < 1 else ()


def _selected(tile: Tile) -> list[Floats]:
    if not tile.known.thresholds:
        return list(tile.updates)
    ((threshold,),) = tile.known.thresholds
    above = threshold.above(_variance(tile), tile.first)
    return [kept(update, above) for update in tile.updates]


def _energy(tile: Tile) -> Sums:
    """The sum of squares of the selected changes of each update."""
    return np.array([np.square(update, dtype=np.float64).sum() for update in _selected(tile)])


@Method(
    "sce",
    summary="select where updates differ most, weigh updates by their energy, erase minority signs",
    paper='F. Wan et al., "FuseChat: Knowledge Fusion of Chat Models", arXiv 2408.07990',
    operands=(2, MANY),
    settings={"density": Setting(1.0, "share of the coordinates on which updates differ that is selected", 0.0, 1.0)},
    weighted=False,
    ranks=_ranks,
    spread=_variance,
    measure=_energy,
)
def sce(tile: Tile) -> Floats:
    """The mean of selected changes that have the sign of their sum, each update weighted by its share of the energy."""
    selected = _selected(tile)
    energy = float(tile.known.sums.sum())
    shares = tile.known.sums / energy if energy else np.full(len(selected), 1 / len(selected))
    weights = shares.astype(np.float32)
    parts = [update * weight for update, weight in zip(selected, weights, strict=True)]
    return agreeing(selected, parts, is_positive(total(selected)), weights)
