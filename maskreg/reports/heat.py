"""The heat map: density of every module of every layer."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from maskreg.reports.modules import Grid
from maskreg.reports.theme import Theme, in_percent

WIDTH = 9.0
MOST_NUMBERS = 260
"""Maximum number of cells that have room for a number each."""

_LABELS = 40
"""Maximum number of layers that are all labeled."""


def heat_map(grid: Grid, theme: Theme) -> Figure:
    """A row for each layer, a column for each module; cells show density in percent, and are empty without a tensor."""
    values = np.full((len(grid.layers), len(grid.modules)), np.nan)
    for (layer, module), group in grid.cells.items():
        values[grid.layers.index(layer), grid.modules.index(module)] = group.density
    rows, columns = values.shape
    figure = Figure(figsize=(WIDTH, min(11.0, 1.7 + 0.27 * rows)), layout="constrained")
    axes = figure.add_subplot()
    top = max(float(np.nanmax(values)), 1e-9)
    mesh = axes.pcolormesh(values, cmap=theme.heat, vmin=0, vmax=top, edgecolors=theme.ground, linewidth=0.6)
    axes.set_yticks(*_ticks(grid.layers))
    axes.set_xticks(np.arange(columns) + 0.5, [_short(name) for name in grid.modules], rotation=30, ha="right")
    axes.set_ylabel("layer")
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.invert_yaxis()
    if values.size <= MOST_NUMBERS:
        for row, column in np.argwhere(~np.isnan(values)).tolist():
            share = values[row, column]
            # The color map is dark at its low end in both themes.
            ink = "#ffffff" if share < 0.55 * top else "#000000"
            axes.text(column + 0.5, row + 0.5, f"{100 * share:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
    bar = figure.colorbar(mesh, ax=axes, pad=0.015, aspect=30, format=FuncFormatter(in_percent))
    bar.outline.set_visible(False)
    bar.set_label("density")
    return figure


def _ticks(labels: tuple[str, ...]) -> tuple[list[float], list[str]]:
    stride = -(-len(labels) // _LABELS)
    shown = range(0, len(labels), stride)
    return [row + 0.5 for row in shown], [labels[row] for row in shown]


def _short(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else f"…{name[1 - limit :]}"
