"""The figures that plots are drawn on: Matplotlib's, which a notebook shows without pyplot."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

SCREEN_DPI = 150
"""Resolution of the pictures that a page or a notebook carries."""


class Drawing(Figure):
    """A figure of Matplotlib, to be changed and saved like any other."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=SCREEN_DPI)
        return buffer.getvalue()
