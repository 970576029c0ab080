"""The heat map of a consensus map: how many of several masks hold each coordinate of a matrix, block by block."""

from __future__ import annotations

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from maskreg.analysis.comparison import ConsensusPicture
from maskreg.reports.drawing import Drawing
from maskreg.reports.heat import color_key
from maskreg.reports.shades import scale
from maskreg.reports.theme import WIDE, Size, Theme

_TALLEST, _FLATTEST = 1.1, 0.3
"""Height of the map over its width: that of the matrix, within these."""


def consensus_heat(picture: ConsensusPicture, theme: Theme, size: Size = WIDE) -> Drawing:
    """Rows of the matrix from above, columns from the left; a cell is the mean consensus ratio of its block.

    Colors run over the ratios of nearly all blocks, so that busy rows and columns show where all are alike.
    """
    rows, columns = picture.map.shape
    share = min(max(rows / columns, _FLATTEST), _TALLEST)
    width = size.width if size.narrow else 0.75 * size.width
    figure = Drawing(figsize=(size.width, share * width + (1.5 if size.narrow else 0.7)), layout="constrained")
    axes = figure.add_subplot()
    shades = ScalarMappable(Normalize(*scale(picture.ratios, np.ones(picture.ratios.shape))), theme.heat)
    # Blocks at the ends may be smaller, so the picture may be a little larger than the matrix.
    height, width = (count * run for count, run in zip(picture.ratios.shape, picture.runs, strict=True))
    colors = shades.to_rgba(picture.ratios)
    axes.imshow(colors, extent=(0, width, height, 0), aspect="auto", interpolation="none")
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    axes.locator_params(nbins=4 if size.narrow else 8, integer=True)
    color_key(figure, shades, picture.ratios, "consensus ratio", size)
    return figure
