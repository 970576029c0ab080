"""Model Breadcrumbs: leave out the largest changes of every tensor as well as the smallest."""

from __future__ import annotations

from maskreg.flow.merge.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Settings, Tile
from maskreg.flow.merge.fusing import fused
from maskreg.flow.merge.numbers import kept


def merge(tile: Tile) -> Floats:
    """The updates between the two cuts, brought together."""
    thinned = []
    for update, (outliers, least) in zip(tile.updates, tile.known.cuts, strict=True):
        between = least.above(update, tile.first) & ~outliers.above(update, tile.first)
        thinned.append(kept(update, between))
    return fused(thinned, tile.weights, tile.settings)


def ranks(numel: int, settings: Settings) -> tuple[int, ...]:
    """How many are above the outliers' cut, and above the cut of what is kept."""
    number = int(settings["density"] * numel)
    # Fewer outliers go where otherwise less than the density would be left.
    outliers = min(int(settings["gamma"] * numel), numel - number)
    return outliers, outliers + number


METHOD = Method(
    name="breadcrumbs",
    paper='M. Davari, E. Belilovsky, "Model Breadcrumbs", ECCV 2024, arXiv 2312.06795',
    summary="leave out the largest and the smallest changes of every tensor, and add up the others",
    merge=merge,
    settings={
        "density": Setting(0.9, DENSITY.meaning, 0.0, 1.0, each=True),
        "gamma": Setting(0.01, "share of the largest changes that is left out", 0.0, 1.0, each=True),
        "sign": Setting("sum", SIGN.meaning, words=SIGN.words),
        "lambda": LAMBDA,
    },
    ranks=ranks,
)
"""The line of the table of methods."""
