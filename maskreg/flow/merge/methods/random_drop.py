"""Random drops: thin out every update by draws, rescale what is left, combine. DARE drops evenly, DELLA by rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import fused, kept
from maskreg.flow.merge.methods.base import DENSITY, LAMBDA, SIGN, Floats, Method, Setting, Settings, Sums, Tile
from maskreg.mask.philox import WORDS

_SEED = Setting(0, "of the random words", 0, 2**64 - 1)
_Drop = Callable[[Tile, int], Floats]


def _sizes(tile: Tile, drop: _Drop) -> Sums:
    """Sums of absolute values of each update and of what is left of it, float64 ``[2 * count]``."""
    pairs = ((update, drop(tile, index)) for index, update in enumerate(tile.updates))
    return np.array([np.abs(side).sum(dtype=np.float64) for pair in pairs for side in pair])


def _resized(thinned: Sequence[Floats], sums: Sums) -> list[Floats]:
    """What is left of updates, with the sums of absolute values that whole updates of a tensor had."""
    factors = [before / after if after else 1.0 for before, after in sums.reshape(-1, 2)]
    return [update * np.float32(factor) for update, factor in zip(thinned, factors, strict=True)]


def _needs_sizes(settings: Settings) -> bool:
    return bool(settings["rescale"] == "l1")


def _dropped_evenly(tile: Tile, index: int) -> Floats:
    border = np.uint32(round((1 - tile.settings["density"]) * WORDS))
    return kept(tile.updates[index], tile.words(index) >= border)


@Method(
    "dare",
    summary="drop changes at random, rescale the others, add up or elect signs",
    paper='L. Yu et al., "Language models are super Mario", ICML 2024, arXiv 2311.03099',
    settings={
        "density": Setting(DENSITY.default, DENSITY.meaning, 1e-6, 1.0),
        "rescale": Setting(
            "inverse",
            "inverse: by 1 / density, as published; l1: to the sum of absolute values of each tensor, as mergekit does",
            words=("inverse", "l1", "none"),
        ),
        "sign": Setting("sum", SIGN.meaning, words=SIGN.words),
        "lambda": LAMBDA,
        "seed": _SEED,
    },
    measure=lambda tile: _sizes(tile, _dropped_evenly),
    measures=_needs_sizes,
)
def dare(tile: Tile) -> Floats:
    """The thinned and rescaled updates, combined."""
    thinned = [_dropped_evenly(tile, index) for index in range(len(tile.updates))]
    if tile.settings["rescale"] == "inverse":
        thinned = [update / np.float32(tile.settings["density"]) for update in thinned]
    elif tile.settings["rescale"] == "l1":
        thinned = _resized(thinned, tile.known.sums)
    return fused(thinned, tile.weights, tile.settings)


def _dropped_by_rank(tile: Tile, index: int) -> Floats:
    update = tile.updates[index]
    length = update.shape[-1]
    # Stable, and largest first: of equal ones, the first has the lower rank.
    order = np.argsort(-np.abs(update), axis=-1, kind="stable")
    rank = np.empty(update.shape, np.float64)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(length, dtype=np.float64), update.shape), axis=-1)
    density, epsilon = tile.settings["density"], tile.settings["epsilon"]
    drop = (1 - density - epsilon / 2) + epsilon * rank / length
    stays = tile.words(index) >= drop * WORDS
    if tile.settings["rescale"] == "inverse":
        update = update / (1 - drop).astype(np.float32)
    return kept(update, stays)


def _require_probabilities(weights: Sequence[float], settings: Settings) -> None:
    density, half = settings["density"], settings["epsilon"] / 2
    if not (density - half > 0 and density + half <= 1):
        raise UsageError(
            f"density {density:g} with epsilon {settings['epsilon']:g}: changes would be kept with probabilities from "
            f"{density - half:g} to {density + half:g}",
            hint="choose an epsilon so that both lie between 0 and 1",
        )


@Method(
    "della",
    summary="drop changes at random, small ones of a row more often, rescale, elect signs",
    paper='P. T. Deep et al., "DELLA-Merging", arXiv 2406.11617',
    settings={
        "density": DENSITY,
        "epsilon": Setting(0.2, "difference of the probabilities at the ends of a row's order", 0.0, 1.0),
        "rescale": Setting(
            "inverse",
            "inverse: by 1 / probability of being kept; l1: to a tensor's sum of absolute values, as in mergekit",
            words=("inverse", "l1", "none"),
        ),
        "sign": SIGN,
        "lambda": LAMBDA,
        "seed": _SEED,
    },
    check=_require_probabilities,
    measure=lambda tile: _sizes(tile, _dropped_by_rank),
    measures=_needs_sizes,
    by_row=True,
)
def della(tile: Tile) -> Floats:
    """Updates of whole rows, thinned by their rank in the row, combined.

    A change with r larger ones among the n of its row is dropped with probability ``p - epsilon / 2 + epsilon r / n``,
    where p is 1 - density, and otherwise rescaled: divided by the probability that it is kept, as published.
    """
    thinned = [_dropped_by_rank(tile, index) for index in range(len(tile.updates))]
    if tile.settings["rescale"] == "l1":
        thinned = _resized(thinned, tile.known.sums)
    return fused(thinned, tile.weights, tile.settings)
