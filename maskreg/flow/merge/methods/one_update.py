"""Methods that change one update: to a mask, by a factor, or to its opposite."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.methods.base import Floats, Method, Setting, Tile


@Method("restrict", summary="one update on the coordinates of a mask", operands=(1, 1), weighted=False, masked=True)
def restrict(tile: Tile) -> Floats:
    """The update; outside the mask, the target has been replaced with the source before."""
    return tile.updates[0]


@Method(
    "scale",
    summary="one update times a factor",
    operands=(1, 1),
    settings={"factor": Setting(1.0, "what the update is multiplied by")},
    weighted=False,
)
def scale(tile: Tile) -> Floats:
    """The update times the factor."""
    return tile.updates[0] * np.float32(tile.settings["factor"])


@Method(
    "negate",
    summary="one update in the opposite direction, to take away what a run has learned",
    paper='G. Ilharco et al., "Editing models with task arithmetic", ICLR 2023, arXiv 2212.04089',
    operands=(1, 1),
    weighted=False,
)
def negate(tile: Tile) -> Floats:
    """The update with the opposite sign."""
    return -tile.updates[0]
