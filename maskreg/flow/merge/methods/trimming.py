"""Thresholds: keep the largest changes (TIES), or leave them out as well as the smallest (Model Breadcrumbs)."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.methods.arithmetic import elected, fused, kept, scaled, total, weighted
from maskreg.flow.merge.methods.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Settings, Sums, Tile


def _trimmed(tile: Tile) -> list[Floats]:
    pairs = zip(tile.updates, tile.known.thresholds, strict=True)
    return [kept(update, threshold.above(update, tile.first)) for update, (threshold,) in pairs]


def _majority(tile: Tile) -> Sums:
    """How many more coordinates elect plus than minus."""
    sums = total(weighted(_trimmed(tile), tile.weights))
    return np.array([np.count_nonzero(sums > 0) - np.count_nonzero(sums < 0)], np.float64)


def _ranks(numel: int, settings: Settings) -> tuple[int, ...]:
    # One more than the share to keep: the authors' threshold is the largest size that would be trimmed, and it stays.
    # Of the size at the threshold of a model all stay.
    return (min(numel, int(numel * settings["density"]) + 1),)


@Method(
    "ties",
    summary="keep the largest changes of the whole model, elect signs, average what agrees",
    paper='P. Yadav et al., "TIES-Merging", NeurIPS 2023, arXiv 2306.01708, and the code of its authors',
    settings={
        "density": Setting(0.2, "share of the model's coordinates that each update keeps", 0.0, 1.0),
        "lambda": LAMBDA,
    },
    ranks=_ranks,
    measure=_majority,
    scope="model",
)
def ties(tile: Tile) -> Floats:
    """The mean of trimmed updates with the elected sign, times lambda.

    Where trimmed updates cancel, the sign that most coordinates of the model elected holds.
    """
    return scaled(elected(_trimmed(tile), tile.weights, float(tile.known.sums[0])), tile.settings)


def _ranks_between(numel: int, settings: Settings) -> tuple[int, ...]:
    number = int(settings["density"] * numel)
    # Fewer outliers go where otherwise less than the density would be left.
    outliers = min(int(settings["gamma"] * numel), numel - number)
    return outliers, outliers + number


@Method(
    "breadcrumbs",
    summary="leave out the largest and the smallest changes of every tensor, add up the others",
    paper='M. Davari, E. Belilovsky, "Model Breadcrumbs", ECCV 2024, arXiv 2312.06795',
    settings={
        "density": Setting(0.9, DENSITY.meaning, 0.0, 1.0),
        "gamma": Setting(0.01, "share of the largest changes that is left out", 0.0, 1.0),
        "sign": Setting("sum", SIGN.meaning, words=SIGN.words),
        "lambda": LAMBDA,
    },
    ranks=_ranks_between,
)
def breadcrumbs(tile: Tile) -> Floats:
    """The updates between the two thresholds, combined."""
    thinned = []
    for update, (outliers, least) in zip(tile.updates, tile.known.thresholds, strict=True):
        between = least.above(update, tile.first) & ~outliers.above(update, tile.first)
        thinned.append(kept(update, between))
    return fused(thinned, tile.weights, tile.settings)
