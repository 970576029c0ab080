"""Scale: one update times a factor."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Setting, Tile


def merge(tile: Tile) -> Floats:
    """The update times the factor."""
    return tile.updates[0] * np.float32(tile.settings["factor"])


METHOD = Method(
    name="scale",
    paper="",
    summary="one update times a factor",
    merge=merge,
    operands=(1, 1),
    settings={"factor": Setting(1.0, "what the update is multiplied by")},
    weighted=False,
)
"""The line of the table of methods."""
