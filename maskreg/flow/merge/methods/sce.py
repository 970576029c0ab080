"""SCE: select the coordinates on which updates differ most, weigh updates by their energy, erase minority signs."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.methods.arithmetic import agreeing, is_positive, kept, total
from maskreg.flow.merge.methods.base import MANY, Floats, Method, Setting, Settings, Sums, Tile


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
