"""SLERP: the point between two models on the arc from one to the other, tensor by tensor."""

from __future__ import annotations

import math

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Setting, Sums, Tile
from maskreg.flow.merge.fusing import dots

PARALLEL = 0.9995
"""Cosine above which the arc is a line, as is usual: its sine would be too small to divide by."""


def merge(tile: Tile) -> Floats:
    """Weights of both models times their factors."""
    first, second = factors(tile.known.sums, tile.settings["t"])
    return np.float32(first) * tile.targets[0] + np.float32(second) * tile.targets[1]


def measure(tile: Tile) -> Sums:
    """Dot products of both models' weights, each with each."""
    return dots(tile.targets)


def factors(sums: Sums, t: float) -> tuple[float, float]:
    """What the two models are multiplied by.

    Args:
        sums: dot products, see :func:`measure`.
        t: 0 for the first model, 1 for the second.
    """
    norms = math.sqrt(sums[0]) * math.sqrt(sums[3])
    cosine = min(1.0, max(-1.0, float(sums[1]) / norms)) if norms else 1.0
    if abs(cosine) > PARALLEL:
        return 1 - t, t
    angle = math.acos(cosine)
    return math.sin((1 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)


METHOD = Method(
    name="slerp",
    paper='K. Shoemake, "Animating rotation with quaternion curves", SIGGRAPH 1985',
    summary="the point on the arc between two models",
    merge=merge,
    operands=(2, 2),
    settings={"t": Setting(0.5, "0 is the first model, 1 the second", 0.0, 1.0)},
    weighted=False,
    measure=measure,
    gives="values",
)
"""The line of the table of methods."""
