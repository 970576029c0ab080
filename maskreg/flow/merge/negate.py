"""Negate: one update in the opposite direction, to take away what a run has learned."""

from __future__ import annotations

from maskreg.flow.merge.base import Floats, Method, Tile


def merge(tile: Tile) -> Floats:
    """The update with the opposite sign."""
    return -tile.updates[0]


METHOD = Method(
    name="negate",
    paper='G. Ilharco et al., "Editing models with task arithmetic", ICLR 2023, arXiv 2212.04089',
    summary="one update in the opposite direction",
    merge=merge,
    operands=(1, 1),
    weighted=False,
)
"""The line of the table of methods."""
