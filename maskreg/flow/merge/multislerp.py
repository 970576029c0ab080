"""Multi-SLERP: the mean direction of several updates, with the mean of their norms, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Sums, Tile
from maskreg.flow.merge.fusing import dots, total, weighted
from maskreg.flow.merge.linear import check


def merge(tile: Tile) -> Floats:
    """The weighted mean of the updates' directions, made as long as the weighted mean of their norms.

    The published method then takes a step in the tangent space of that direction, along the mean of the updates'
    projections. Around the mean direction these add up to 0, so there is no such step.
    """
    return total(weighted(tile.updates, factors(tile.known.sums, tile.weights)))


def measure(tile: Tile) -> Sums:
    """Dot products of all pairs of updates."""
    return dots(tile.updates)


def factors(sums: Sums, weights: Sequence[float]) -> list[float]:
    """What the updates are multiplied by; their weights where directions cancel.

    Args:
        sums: dot products, float64 ``[count * count]``.
        weights: of the updates.
    """
    products = sums.reshape(len(weights), len(weights))
    norms, shares = np.sqrt(np.diagonal(products)), np.array(weights) / sum(weights)
    scaled = np.divide(shares, norms, out=np.zeros(len(weights)), where=norms > 0)
    length = float(np.sqrt(max(0.0, float(scaled @ products @ scaled))))
    found = shares if length < 1e-8 else float(shares @ norms) / length * scaled
    return [float(factor) for factor in found]


METHOD = Method(
    name="multislerp",
    paper='C. Goddard, "Multi-SLERP", goddard.blog, 2025',
    summary="the mean direction of the updates, with the mean of their norms",
    merge=merge,
    measure=measure,
    check=check,
)
"""The line of the table of methods."""
