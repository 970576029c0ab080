"""Model Breadcrumbs: leave out the largest changes of every tensor as well as the smallest."""

from __future__ import annotations

from maskreg.flow.merge.methods.arithmetic import fused, kept
from maskreg.flow.merge.methods.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Settings, Tile


def _ranks(numel: int, settings: Settings) -> tuple[int, ...]:
    number = int(settings["density"] * numel)
    # Fewer outliers go where otherwise less than the density would be left.
    outliers = min(int(settings["gamma"] * numel), numel - number)
    return outliers, outliers + number


@Method(
    "breadcrumbs",
    summary="leave out the largest and the smallest changes of every tensor, add up the others",
    paper='M. Davari, E. Belilovsky, "Model Breadcrumbs", ECCV 2024, arXiv 2312.06795',
    settings={
        "density": Setting(0.9, DENSITY.meaning, 0.0, 1.0, each=True),
        "gamma": Setting(0.01, "share of the largest changes that is left out", 0.0, 1.0, each=True),
        "sign": Setting("sum", SIGN.meaning, words=SIGN.words),
        "lambda": LAMBDA,
    },
    ranks=_ranks,
)
def breadcrumbs(tile: Tile) -> Floats:
    """The updates between the two thresholds, combined."""
    thinned = []
    for update, (outliers, least) in zip(tile.updates, tile.known.thresholds, strict=True):
        between = least.above(update, tile.first) & ~outliers.above(update, tile.first)
        thinned.append(kept(update, between))
    return fused(thinned, tile.weights, tile.settings)
