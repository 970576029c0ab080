"""Figures of Adam's state: m and v are its first and second moment, g the gradient, d an update."""

from __future__ import annotations

from maskreg.analysis.glossary.masks import DSSU
from maskreg.glossary import Entry

MOMENTS = (
    Entry(
        "v_spread",
        "Coefficient of variation of sqrt(v) over the coordinates of a weight: standard deviation over mean. 0 if Adam "
        "scales all coordinates alike, as SGD does.",
        DSSU,
    ),
    Entry("v_zero", "Share of coordinates with v = 0: no gradient has reached them."),
    Entry(
        "m_gradient",
        "Cosine of the first moment and the gradient, -1 to 1. Undefined unless the gradient was saved (grad).",
        DSSU,
    ),
    Entry(
        "m_update",
        "Cosine of -m and the update d = W1 - W0: whether the run ends in the direction that it went in all.",
    ),
    Entry(
        "step_update",
        "Cosine of the next step's direction, -m / (sqrt(v) + 1e-8), and the update; without bias corrections, which "
        "change no direction, and without weight decay.",
    ),
)
"""Definitions, in the order of tables."""
