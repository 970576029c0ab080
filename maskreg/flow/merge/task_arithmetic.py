"""Task arithmetic: a weighted sum of updates; a negative weight subtracts what a run has learned."""

from __future__ import annotations

from maskreg.flow.merge.base import LAMBDA, Floats, Method, Tile
from maskreg.flow.merge.fusing import scaled, total, weighted


def merge(tile: Tile) -> Floats:
    """The sum of weighted updates, times lambda."""
    return scaled(total(weighted(tile.updates, tile.weights)), tile.settings)


METHOD = Method(
    name="task-arithmetic",
    paper='G. Ilharco et al., "Editing models with task arithmetic", ICLR 2023, arXiv 2212.04089',
    summary="the weighted sum of the updates",
    merge=merge,
    settings={"lambda": LAMBDA},
)
"""The line of the table of methods."""
