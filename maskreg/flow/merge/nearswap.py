"""NearSwap: one update whose changes are cut to a largest size, so that only near weights are swapped whole."""

from __future__ import annotations

import numpy as np

from maskreg.flow.merge.base import Floats, Method, Setting, Tile


def merge(tile: Tile) -> Floats:
    """Each change times min(1, t / its size): changes of up to t are taken whole, and of larger ones t."""
    t = np.float32(tile.settings["t"])
    return np.clip(tile.updates[0], -t, t)


METHOD = Method(
    name="nearswap",
    paper="alchemonaut, QuartetAnemoi-70B-t0.0001, huggingface.co, 2024",
    summary="one update whose changes are cut to a largest size",
    merge=merge,
    operands=(1, 1),
    settings={"t": Setting(1e-4, "the largest change", 0.0)},
    weighted=False,
)
"""The line of the table of methods."""
