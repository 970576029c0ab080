"""Karcher mean: the point on the sphere whose squared angles to all models are least, tensor by tensor.

Every point on the way to it is a combination of the models, so their dot products are all that has to be known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskreg.errors import UsageError
from maskreg.flow.merge.base import Floats, Method, Setting, Settings, Sums, Tile
from maskreg.flow.merge.fusing import dots, total, weighted


def merge(tile: Tile) -> Floats:
    """The mean direction of the models' weights, times the weighted mean of their norms."""
    return total(weighted(tile.targets, factors(tile.known.sums, tile.weights, tile.settings)))


def measure(tile: Tile) -> Sums:
    """Dot products of all pairs of models."""
    return dots(tile.targets)


def factors(sums: Sums, weights: Sequence[float], settings: Settings) -> list[float]:
    """What the models are multiplied by.

    From the normalized mean, each step goes along the weighted mean of the arcs to all models, until that is shorter
    than ``tol``.

    Args:
        sums: dot products, float64 ``[count * count]``.
        weights: of the models.
        settings: ``max_iter`` and ``tol``.
    """
    count, tol = len(weights), settings["tol"]
    norms = np.sqrt(np.diagonal(sums.reshape(count, count)))
    shares = np.array(weights) / sum(weights)
    used = np.where(norms > tol, shares, 0.0)
    if not used.any():
        return [float(share) for share in shares]
    used /= used.sum()
    safe = np.where(norms > tol, norms, 1.0)
    cosines = sums.reshape(count, count) / np.outer(safe, safe)
    # A point is the sum of unit vectors times these.
    point = used.copy()
    if (length := _length(point, cosines)) < tol:
        point = np.eye(count)[int(np.argmax(used > 0))]
    else:
        point /= length
    for _ in range(settings["max_iter"]):
        cosine = np.clip(cosines @ point, -1.0, 1.0)
        angle = np.arccos(cosine)
        far = np.where((angle >= tol) & (np.sin(angle) > 0), angle, 0.0)
        pull = used * np.divide(far, np.sin(angle), out=np.zeros(count), where=far > 0)
        step = pull - float(pull @ cosine) * point
        if (length := _length(step, cosines)) < tol:
            break
        point = np.cos(length) * point + np.sin(length) / length * step
        point /= _length(point, cosines)
    return [float(factor) for factor in float(shares @ norms) * point / safe]


def check(weights: Sequence[float], settings: Settings) -> None:
    """Refuse weights of which no mean can be taken.

    Raises:
        UsageError: one is negative, or all are 0.
    """
    if min(weights) < 0 or not sum(weights):
        raise UsageError("a mean on the sphere needs weights of 0 or more, not all 0", hint="use task-arithmetic")


def _length(point: Sums, cosines: Sums) -> float:
    return float(np.sqrt(max(0.0, float(point @ cosines @ point))))


METHOD = Method(
    name="karcher",
    paper='H. Karcher, "Riemannian center of mass and mollifier smoothing", CPAM 30, 1977',
    summary="the mean of models on the sphere",
    merge=merge,
    settings={
        "max_iter": Setting(10, "steps at most", 0, 1000),
        "tol": Setting(1e-5, "the length of a step that ends them", 1e-12, 1.0),
    },
    measure=measure,
    check=check,
    gives="values",
)
"""The line of the table of methods."""
