"""DELLA: drop coordinates at random, small changes more often than large ones of the same row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Settings, Sums, Tile
from maskreg.flow.merge.fusing import fused, resized, sizes
from maskreg.flow.merge.numbers import kept
from maskreg.mask.philox import WORDS


def merge(tile: Tile) -> Floats:
    """Updates of whole rows, thinned by their rank in the row, brought together.

    A change with r larger ones among the n of its row is dropped with probability ``p - epsilon / 2 + epsilon r / n``,
    where p is 1 - density, and otherwise rescaled: divided by the probability that it is kept, as published.
    """
    thinned = [_kept(tile, index) for index in range(len(tile.updates))]
    if tile.settings["rescale"] == "l1":
        thinned = resized(thinned, tile.known.sums)
    return fused(thinned, tile.weights, tile.settings)


def measure(tile: Tile) -> Sums:
    """Sums of absolute values before and after dropping, for each artifact."""
    return sizes(tile.updates, [_kept(tile, index) for index in range(len(tile.updates))])


def check(weights: Sequence[float], settings: Settings) -> None:
    """Refuse probabilities beyond 0 and 1.

    Raises:
        UsageError: there are some.
    """
    density, half = settings["density"], settings["epsilon"] / 2
    if not (density - half > 0 and density + half <= 1):
        raise UsageError(
            f"density {density:g} with epsilon {settings['epsilon']:g}: changes would be kept with probabilities from "
            f"{density - half:g} to {density + half:g}",
            hint="--set epsilon=... so that both lie between 0 and 1",
        )


def _kept(tile: Tile, index: int) -> Floats:
    update = tile.updates[index]
    length = update.shape[-1]
    # Stable, and largest first: of equal ones, the first has the lower rank.
    order = np.argsort(-np.abs(update), axis=-1, kind="stable")
    rank = np.empty(update.shape, np.float64)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(length, dtype=np.float64), update.shape), axis=-1)
    density, epsilon = tile.each[index]["density"], tile.each[index]["epsilon"]
    drop = (1 - density - epsilon / 2) + epsilon * rank / length
    stays = tile.words(index) >= drop * WORDS
    if tile.settings["rescale"] == "inverse":
        update = update / (1 - drop).astype(np.float32)
    return kept(update, stays)


METHOD = Method(
    name="della",
    paper='P. T. Deep et al., "DELLA-Merging", arXiv 2406.11617',
    summary="drop changes at random, small ones of a row more often, rescale, elect signs",
    merge=merge,
    settings={
        "density": DENSITY,
        "epsilon": Setting(0.2, "difference of the probabilities at the ends of a row's order", 0.0, 1.0, each=True),
        "rescale": Setting(
            "inverse",
            "inverse: by 1 / probability of being kept; l1: to a tensor's sum of absolute values, as in mergekit",
            words=("inverse", "l1", "none"),
        ),
        "sign": SIGN,
        "lambda": LAMBDA,
        "seed": Setting(0, "of the random words", 0, 2**64 - 1),
    },
    check=check,
    measure=measure,
    measures=lambda settings: bool(settings["rescale"] == "l1"),
    by_row=True,
)
"""The line of the table of methods."""
