"""SCE: select the coordinates on which updates differ most, weigh updates by their energy, erase minority signs."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import MANY, Floats, Method, Setting, Settings, Sums, Tile
from maskreg.flow.merge.fusing import is_positive, total
from maskreg.flow.merge.numbers import kept


def merge(tile: Tile) -> Floats:
    """The mean of selected changes that have the sign of their sum, each update weighted by its share of the energy."""
    selected = _selected(tile)
    energy = float(tile.known.sums.sum())
    shares = tile.known.sums / energy if energy else np.full(len(selected), 1 / len(selected))
    positive = is_positive(total(selected))
    over, under = np.zeros_like(selected[0]), np.zeros_like(selected[0])
    for update, share in zip(selected, shares.astype(np.float32), strict=True):
        agrees = ((update > 0) == positive) & (update != 0)
        over += kept(update * share, agrees)
        under += agrees * share
    under[under == 0] = 1
    return over / under


def measure(tile: Tile) -> Sums:
    """The energy of the selected changes of each update: the sum of their squares."""
    return np.array([np.square(update, dtype=np.float64).sum() for update in _selected(tile)])


def spread(tile: Tile) -> Floats:
    """The variance of a coordinate's changes over the updates."""
    mean = total(tile.updates) / np.float32(len(tile.updates))
    return total([np.square(update - mean) for update in tile.updates]) / np.float32(len(tile.updates))


def ranks(differing: int, settings: Settings) -> tuple[int, ...]:
    """How many of the coordinates on which updates differ are selected; no cut where all are."""
    return (int(differing * settings["density"]),) if settings["density"] < 1 else ()


def _selected(tile: Tile) -> list[Floats]:
    if not tile.known.cuts:
        return list(tile.updates)
    ((cut,),) = tile.known.cuts
    above = cut.above(spread(tile), tile.first)
    return [kept(update, above) for update in tile.updates]


METHOD = Method(
    name="sce",
    paper='F. Wan et al., "FuseChat: Knowledge Fusion of Chat Models", arXiv 2408.07990',
    summary="select where updates differ most, weigh updates by their energy, erase minority signs",
    merge=merge,
    operands=(2, MANY),
    settings={"density": Setting(1.0, "share of the coordinates on which updates differ that is selected", 0.0, 1.0)},
    weighted=False,
    ranks=ranks,
    spread=spread,
    measure=measure,
)
"""The line of the table of methods."""
