"""Methods that change one update: to a mask, to a largest size, by a factor, or to its opposite."""

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


@Method(
    "nearswap",
    summary="one update with changes cut to a largest size, so that only near weights are swapped whole",
    paper="alchemonaut, QuartetAnemoi-70B-t0.0001, huggingface.co, 2024",
    operands=(1, 1),
    settings={"t": Setting(1e-4, "the largest change", 0.0)},
    weighted=False,
)
def nearswap(tile: Tile) -> Floats:
    """Each change times min(1, t / its size): changes of up to t are taken whole, and of larger ones t."""
    t = np.float32(tile.settings["t"])
    return np.clip(tile.updates[0], -t, t)
