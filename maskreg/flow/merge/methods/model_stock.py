"""Model Stock: how far to go from the source towards the average, by the angles between the updates of a tensor."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.methods.arithmetic import total, update_dots
from maskreg.flow.merge.methods.base import MANY, Floats, Method, Sums, Tile


def _share(sums: Sums, count: int) -> float:
    """How much of the average to take; 0 where it is not defined."""
    dots = sums.reshape(count, count)
    norms = np.sqrt(np.diagonal(dots))
    products = np.outer(norms, norms)
    cosines = np.divide(dots, products, out=np.zeros_like(dots), where=products > 0)
    cosine = float(np.clip(cosines[np.triu_indices(count, 1)], -1, 1).mean())
    below = 1 + (count - 1) * cosine
    return count * cosine / below if abs(below) > 1e-6 else 0.0


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
    return total(tile.updates) / np.float32(count) * np.float32(_share(tile.known.sums, count))
