"""Restrict: one update on the coordinates of a mask alone."""

from __future__ import annotations

from maskreg.flow.merge.base import Floats, Method, Tile


def merge(tile: Tile) -> Floats:
    """The update; outside the mask, the target has been replaced with the source before."""
    return tile.updates[0]


METHOD = Method(
    name="restrict",
    paper="",
    summary="one update on the coordinates of a mask",
    merge=merge,
    operands=(1, 1),
    weighted=False,
    masked=True,
)
"""The line of the table of methods."""
