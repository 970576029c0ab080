"""DARE: drop coordinates of every update at random, and rescale what is left."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Sums, Tile
from maskreg.flow.merge.fusing import fused, resized, sizes
from maskreg.flow.merge.numbers import kept
from maskreg.mask.philox import WORDS


def merge(tile: Tile) -> Floats:
    """The thinned and rescaled updates, brought together."""
    thinned = [_kept(tile, index) for index in range(len(tile.updates))]
    rescale = tile.settings["rescale"]
    if rescale == "inverse":
        thinned = [u / np.float32(own["density"]) for u, own in zip(thinned, tile.each, strict=True)]
    elif rescale == "l1":
        thinned = resized(thinned, tile.known.sums)
    return fused(thinned, tile.weights, tile.settings)


def measure(tile: Tile) -> Sums:
    """Sums of absolute values before and after dropping, for each artifact."""
    return sizes(tile.updates, [_kept(tile, index) for index in range(len(tile.updates))])


def _kept(tile: Tile, index: int) -> Floats:
    border = np.uint32(round((1 - tile.each[index]["density"]) * WORDS))
    return kept(tile.updates[index], tile.words(index) >= border)


METHOD = Method(
    name="dare",
    paper='L. Yu et al., "Language models are super Mario", ICML 2024, arXiv 2311.03099',
    summary="drop changes at random, rescale the others, and add up or elect signs",
    merge=merge,
    settings={
        "density": Setting(DENSITY.default, DENSITY.meaning, 1e-6, 1.0, each=True),
        "rescale": Setting(
            "inverse",
            "inverse: by 1 / density, as published; l1: to the sum of absolute values of each tensor, as mergekit does",
            words=("inverse", "l1", "none"),
        ),
        "sign": Setting("sum", SIGN.meaning, words=SIGN.words),
        "lambda": LAMBDA,
        "seed": Setting(0, "of the random words", 0, 2**64 - 1),
    },
    measure=measure,
    measures=lambda settings: bool(settings["rescale"] == "l1"),
)
"""The line of the table of methods."""
