"""Averages and sums: weighted sums of updates, Model Stock, and means on the sphere.

Each result is a combination of the models or of the updates. What its factors need to know are dot products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.methods.arithmetic import length_of, scaled, target_dots, total, update_dots, weighted
from maskreg.flow.merge.methods.base import LAMBDA, MANY, Floats, Method, Setting, Settings, Sums, Tile


def require_sum(weights: Sequence[float], settings: Settings) -> None:
    """Refuse weights that cancel."""
    if not np.float32(sum(weights)):
        raise UsageError("the weights add up to 0, and the average divides by their sum", hint="use task-arithmetic")


@Method(
    "linear",
    summary="the weighted average of the updates",
    paper='M. Wortsman et al., "Model soups", ICML 2022, arXiv 2203.05482',
    check=require_sum,
)
def linear(tile: Tile) -> Floats:
    """The sum of weighted updates over the sum of weights."""
    return total(weighted(tile.updates, tile.weights)) / np.float32(sum(tile.weights))


@Method(
    "task-arithmetic",
    summary="the weighted sum of the updates; a negative weight subtracts",
    paper='G. Ilharco et al., "Editing models with task arithmetic", ICLR 2023, arXiv 2212.04089',
    settings={"lambda": LAMBDA},
)
def task_arithmetic(tile: Tile) -> Floats:
    """The sum of weighted updates, times lambda."""
    return scaled(total(weighted(tile.updates, tile.weights)), tile.settings)


@Method(
    "model-stock",
    summary="go towards the average as far as the angles between the updates of a tensor suggest",
    paper='D.-H. Jang et al., "Model Stock", ECCV 2024, arXiv 2403.19522',
    operands=(2, MANY),
    weighted=False,
    measure=update_dots,
)
def model_stock(tile: Tile) -> Floats:
    """The average update times t = n cos / (1 + (n - 1) cos), with the mean cosine between two updates."""
    count = len(tile.updates)
    # How much of the average to take; 0 where it is not defined.
    dots = tile.known.sums.reshape(count, count)
    norms = np.sqrt(np.diagonal(dots))
    products = np.outer(norms, norms)
    cosines = np.divide(dots, products, out=np.zeros_like(dots), where=products > 0)
    cosine = float(np.clip(cosines[np.triu_indices(count, 1)], -1, 1).mean())
    below = 1 + (count - 1) * cosine
    return total(tile.updates) / np.float32(count) * np.float32(count * cosine / below if abs(below) > 1e-6 else 0.0)


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
    """What the models are multiplied by, given their dot products, float64 ``[count * count]``.

    From the normalized mean, each step goes along the weighted mean of the arcs to all models, until that is shorter
    than ``tol``.
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
