"""TIES as its authors publish it: trim over the whole model, elect signs, average what agrees."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import LAMBDA, Floats, Method, Setting, Settings, Sums, Tile
from maskreg.flow.merge.fusing import elected, scaled, total, weighted
from maskreg.flow.merge.numbers import kept


def merge(tile: Tile) -> Floats:
    """The mean of trimmed updates with the elected sign, times lambda.

    Where trimmed updates cancel, the sign that most coordinates of the model elected holds.
    """
    return scaled(elected(_trimmed(tile), tile.weights, float(tile.known.sums[0])), tile.settings)


def measure(tile: Tile) -> Sums:
    """How many more coordinates elect plus than minus."""
    sums = total(weighted(_trimmed(tile), tile.weights))
    return np.array([np.count_nonzero(sums > 0) - np.count_nonzero(sums < 0)], np.float64)


def ranks(numel: int, settings: Settings) -> tuple[int, ...]:
    """One more than the share to keep: the threshold is the largest size that would be trimmed, and it is kept."""
    return (min(numel, int(numel * settings["density"]) + 1),)


def _trimmed(tile: Tile) -> list[Floats]:
    # Of the size at the threshold all stay, as at every cut of a model.
    pairs = zip(tile.updates, tile.known.cuts, strict=True)
    return [kept(update, cut.above(update, tile.first)) for update, (cut,) in pairs]


METHOD = Method(
    name="ties",
    paper='P. Yadav et al., "TIES-Merging", NeurIPS 2023, arXiv 2306.01708, and the code of its authors',
    summary="keep the largest changes of the model, elect signs, average what agrees",
    merge=merge,
    settings={
        "density": Setting(
            0.2, "share of the model's coordinates that each update keeps", 0.0, 1.0, each=True, fixed=True
        ),
        "lambda": LAMBDA,
    },
    ranks=ranks,
    measure=measure,
    scope="model",
)
"""The line of the table of methods."""
