"""Methods on the sphere, tensor by tensor: SLERP, Multi-SLERP and the Karcher mean.

Each result is a combination of the models or of the updates, so their dot products are all that has to be known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import length_of, target_dots, total, update_dots, weighted
from maskreg.flow.merge.methods.base import Floats, Method, Setting, Settings, Sums, Tile
from maskreg.flow.merge.methods.weighted_sum import require_sum

PARALLEL = 0.9995
"""Cosine above which the arc is a line, as is usual: its sine would be too small to divide by."""


@Method(
    "slerp",
    summary="the point on the arc between two models",
    paper='K. Shoemake, "Animating rotation with quaternion curves", SIGGRAPH 1985',
    operands=(2, 2),
    settings={"t": Setting(0.5, "0 is the first model, 1 the second", 0.0, 1.0)},
    weighted=False,
    measure=target_dots,
    gives="values",
)
def slerp(tile: Tile) -> Floats:
    """Weights of both models times their factors."""
    t, sums = tile.settings["t"], tile.known.sums
    norms = math.sqrt(sums[0]) * math.sqrt(sums[3])
    cosine = min(1.0, max(-1.0, float(sums[1]) / norms)) if norms else 1.0
    if abs(cosine) > PARALLEL:
        first, second = 1 - t, t
    else:
        angle = math.acos(cosine)
        first, second = math.sin((1 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)
    return np.float32(first) * tile.targets[0] + np.float32(second) * tile.targets[1]


@Method(
    "multislerp",
    summary="the mean direction of the updates, with the mean of their norms",
    paper='C. Goddard, "Multi-SLERP", goddard.blog, 2025',
    measure=update_dots,
    check=require_sum,
)
def multislerp(tile: Tile) -> Floats:
    """The weighted mean of the updates' directions, made as long as the weighted mean of their norms.

    Where directions cancel, it is the weighted mean of the updates. The published method then takes a step in the
    tangent space of that direction, along the mean of the updates' projections. Around the mean direction these add up
    to 0, so there is no such step.
    """
    count = len(tile.weights)
    products = tile.known.sums.reshape(count, count)
    norms, shares = np.sqrt(np.diagonal(products)), np.array(tile.weights) / sum(tile.weights)
    scaled = np.divide(shares, norms, out=np.zeros(count), where=norms > 0)
    length = length_of(scaled, products)
    factors = shares if length < 1e-8 else float(shares @ norms) / length * scaled
    return total(weighted(tile.updates, factors.tolist()))


def karcher_factors(sums: Sums, weights: Sequence[float], settings: Settings) -> list[float]:
    """What the models are multiplied by.

    From the normalized mean, each step goes along the weighted mean of the arcs to all models, until that is shorter
    than ``tol``.

    Args:
        sums: dot products, float64 ``[count * count]``.
        weights: of the models.
        settings: ``max_iter`` and ``tol``.
    """
    count, tol = len(weights), settings["tol"]
    products = sums.reshape(count, count)
    norms, shares = np.sqrt(np.diagonal(products)), np.array(weights) / sum(weights)
    used = np.where(norms > tol, shares, 0.0)
    if not used.any():
        return [float(share) for share in shares]
    used /= used.sum()
    safe = np.where(norms > tol, norms, 1.0)
    cosines = products / np.outer(safe, safe)
    # A point is the sum of unit vectors times these.
    point = used.copy()
    if (length := length_of(point, cosines)) < tol:
        point = np.eye(count)[int(np.argmax(used > 0))]
    else:
        point /= length
    for _ in range(settings["max_iter"]):
        cosine = np.clip(cosines @ point, -1.0, 1.0)
        angle = np.arccos(cosine)
        far = np.where((angle >= tol) & (np.sin(angle) > 0), angle, 0.0)
        pull = used * np.divide(far, np.sin(angle), out=np.zeros(count), where=far > 0)
        step = pull - float(pull @ cosine) * point
        if (length := length_of(step, cosines)) < tol:
            break
        point = np.cos(length) * point + np.sin(length) / length * step
        point /= length_of(point, cosines)
    return [float(factor) for factor in float(shares @ norms) * point / safe]


def _require_mean(weights: Sequence[float], settings: Settings) -> None:
    if min(weights) < 0 or not sum(weights):
        raise UsageError("a mean on the sphere needs weights of 0 or more, not all 0", hint="use task-arithmetic")


@Method(
    "karcher",
    summary="the mean of models on the sphere: the sum of squared angles to them is least",
    paper='H. Karcher, "Riemannian center of mass and mollifier smoothing", CPAM 30, 1977, doi 10.1002/cpa.3160300502',
    settings={
        "max_iter": Setting(10, "steps at most", 0, 1000),
        "tol": Setting(1e-5, "the length of a step that ends them", 1e-12, 1.0),
    },
    measure=target_dots,
    check=_require_mean,
    gives="values",
)
def karcher(tile: Tile) -> Floats:
    """The mean direction of the models' weights, times the weighted mean of their norms."""
    return total(weighted(tile.targets, karcher_factors(tile.known.sums, tile.weights, tile.settings)))
