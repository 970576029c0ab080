"""The heat map: density of every module of every layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import FuncFormatter

from maskreg.reports.drawing import Drawing
from maskreg.reports.modules import Grid
from maskreg.reports.shades import Values, ink_on, scale, table
from maskreg.reports.theme import WIDE, Size, Theme, in_percent
from maskreg.words import three_digits

LABELS = 40
"""Maximum number of layers, or masks, that are all labeled."""

FONT = 8.5
"""Size of the texts in cells."""

POINTS = 72.0
"""Points of an inch."""

_GLYPH = 0.62
"""Width of a digit, in font sizes."""


def heat_map(grid: Grid, theme: Theme, size: Size = WIDE) -> Drawing:
    """A row for each layer, a column for each module; cells show density in percent, and are empty without a tensor.

    Colors run over the densities of nearly all coordinates, so that modules differ in color even where all are dense.
    Modules of which nothing moved have no color.
    """
    values, weights = table(grid)
    rows, columns = values.shape
    height = min(14.0 if size.narrow else 11.0, (2.4 if size.narrow else 1.7) + (0.24 if size.narrow else 0.27) * rows)
    figure = Drawing(figsize=(size.width, height), layout="constrained")
    axes = figure.add_subplot()
    low, high = scale(values, weights)
    norm = Normalize(low, high)
    # One image, a pixel a cell: thousands of rectangles would make the page several times as large.
    colors = np.zeros((rows, columns, 4))
    colors[values > 0] = mpl.colormaps[theme.heat](norm(values[values > 0]))
    axes.imshow(colors, extent=(0, columns, rows, 0), aspect="auto", interpolation="none")
    axes.vlines(np.arange(1, columns), 0, rows, colors=theme.ground, linewidth=0.6)
    axes.hlines(np.arange(1, rows), 0, columns, colors=theme.ground, linewidth=0.6)
    axes.set_yticks(*_ticks(grid.layers))
    # A slanted label needs the width of a few cells.
    angle: dict[str, Any] = (
        {"rotation": 90} if size.narrow else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    )
    axes.set_xticks(np.arange(columns) + 0.5, [short(name) for name in grid.modules], **angle)
    axes.set_ylabel("layer")
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    shades = ScalarMappable(norm, theme.heat)
    color_key(figure, shades, values[values > 0], "density", size)
    room = (0.8 * size.width * POINTS / columns, (height - 1.6) * POINTS / rows)
    _write(axes, values, shades, room, theme.ink)
    return figure


def written(values: Values, room: tuple[float, float]) -> list[str] | None:
    """The densities as texts that fit into their cells: three digits, or two; None where no text fits.

    Args:
        values: densities.
        room: width and height of a cell, in points.
    """
    shares = [100 * share for share in values.tolist()]
    return fitting(([three_digits(share) for share in shares], [_two_digits(share) for share in shares]), room)


def fitting(choices: Iterable[list[str]], room: tuple[float, float]) -> list[str] | None:
    """The first texts that fit into their cells; None where none do.

    Args:
        choices: texts of all cells, the longest first.
        room: width and height of a cell, in points.
    """
    for texts in choices:
        widest = max(map(len, texts), default=0) * _GLYPH * FONT
        if widest <= room[0] and room[1] >= 1.15 * FONT:
            return texts
    return None


def color_key(figure: Drawing, shades: ScalarMappable, values: Values, label: str, size: Size) -> None:
    """The color scale beside a map, or above it on a phone, with an arrow where values lie beyond its ends.

    Args:
        figure: of the map, its only axes.
        shades: the scale.
        values: everything that has a color.
        label: the figure.
        size: room for the map.
    """
    low, high = shades.get_clim()
    below, above = bool((values < low).any()), bool((values > high).any())
    extend = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}[below, above]
    where = {"location": "top", "aspect": 26} if size.narrow else {"pad": 0.015, "aspect": 30}
    axes = figure.axes[0]
    bar = figure.colorbar(shades, ax=axes, format=FuncFormatter(in_percent), extend=extend, extendfrac=0.02, **where)
    bar.outline.set_visible(False)
    bar.set_label(label)
    bar.locator = mpl.ticker.MaxNLocator(4 if size.narrow else 6)
    bar.update_ticks()


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 or not value else "<.1" if value < 0.1 else f"{value:.1f}".removeprefix("0")


def _write(axes: Any, values: Values, shades: ScalarMappable, room: tuple[float, float], ink: str) -> None:
    cells = np.argwhere(~np.isnan(values))
    shares = values[tuple(cells.T)]
    texts = written(shares, room)
    if texts is None:
        return
    for (row, column), share, text in zip(cells.tolist(), shares, texts, strict=True):
        color = ink_on(np.asarray(shades.to_rgba(share)).tolist()) if share else ink
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=FONT, color=color)


def _ticks(labels: tuple[str, ...]) -> tuple[list[float], list[str]]:
    stride = -(-len(labels) // LABELS)
    shown = range(0, len(labels), stride)
    return [row + 0.5 for row in shown], [labels[row] for row in shown]


def short(name: str, limit: int = 28) -> str:
    """The end of a name that is too long for a label."""
    return name if len(name) <= limit else f"…{name[1 - limit :]}"
