"""The heat map: density of every module of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from maskreg.analysis.comparison import ConsensusPicture
from maskreg.analysis.pairwise import PairMatrix
from maskreg.reports.modules import Grid, Values, ink_on, scale, table
from maskreg.reports.theme import WIDE, Size, Theme, in_percent
from maskreg.words import three_digits

_TALLEST, _FLATTEST = 1.1, 0.3
"""Bounds of the map's height over its width, which follows the matrix."""


def consensus_heat(picture: ConsensusPicture, theme: Theme, size: Size = WIDE) -> Figure:
    """Rows of the matrix from above, columns from the left; a cell is the mean consensus ratio of its block.

    Colors run over the ratios of nearly all blocks, so that busy rows and columns show where all are alike.
    """
    rows, columns = picture.shape
    share = min(max(rows / columns, _FLATTEST), _TALLEST)
    width = size.width if size.narrow else 0.75 * size.width
    figure = Figure(figsize=(size.width, share * width + (1.5 if size.narrow else 0.7)), layout="constrained")
    axes = figure.add_subplot()
    shades = ScalarMappable(Normalize(*scale(picture.ratios, np.ones(picture.ratios.shape))), theme.heat)
    # Blocks at the ends can be smaller, so the picture can be a little larger than the matrix.
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


_FADED = 0.3
"""Opacity of a pair without an answer."""


def headroom_map(matrix: PairMatrix, theme: Theme, size: Size = WIDE) -> Figure:
    """A row and a column for each mask; cells show headroom in percent, and are empty on the diagonal.

    Zero is the gray in the middle of the color scale, whose ends are pairs with an answer. Pairs without one
    are faded: their masks are related, or it cannot be told.
    """
    count, values = len(matrix.order), matrix.headrooms[np.ix_(matrix.order, matrix.order)]
    answered = matrix.answered[np.ix_(matrix.order, matrix.order)]
    side = (size.width - (1.1 if size.narrow else 2.6)) / count
    height = min(11.0, (1.9 if size.narrow else 1.5) + count * min(side, 0.42))
    figure = Figure(figsize=(size.width, height), layout="constrained")
    axes = figure.add_subplot()
    # As far on either side of zero as the pairs with an answer, or else all pairs, go.
    known = ~np.isnan(values)
    chosen = values[known & answered] if (known & answered).any() else values[known]
    end = max(float(np.abs(chosen).max(initial=0.0)), 1e-3)
    shades = ScalarMappable(Normalize(-end, end), theme.heat)
    colors = shades.to_rgba(np.nan_to_num(values))
    colors[..., 3] = np.where(np.isnan(values), 0.0, np.where(answered, 1.0, _FADED))
    _draw_cells(axes, colors, theme if count <= LABELS else None)
    _label(axes, matrix, size)
    color_key(figure, shades, values[~np.isnan(values)], "headroom", size)
    room = (0.72 * size.width * POINTS / count, (height - 1.6) * POINTS / count)

    def color_of(row: int, column: int) -> str:
        return ink_on(np.asarray(shades.to_rgba(values[row, column])).tolist()) if answered[row, column] else theme.ink

    _write(axes, values, texts_of, room, color_of)
    return figure


def texts_of(values: npt.NDArray[np.float64], room: tuple[float, float]) -> list[str] | None:
    """Headrooms in percent that fit into their cells, with a decimal or without; None where none fit."""
    shares = [100 * value for value in values.tolist()]
    return fitting(([_signed(share, digits) for share in shares] for digits in (1, 0)), room)


def _signed(value: float, digits: int) -> str:
    # Without the sign of a zero.
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _label(axes: Any, matrix: PairMatrix, size: Size) -> None:
    count = len(matrix.order)
    stride = -(-count // (LABELS // 2 if size.narrow else LABELS))
    shown = range(0, count, stride)
    shared = _shared_prefix(matrix.names)
    names = [short(matrix.names[matrix.order[at]][len(shared) :], 12 if size.narrow else 26) for at in shown]
    places = [at + 0.5 for at in shown]
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_yticks(places, names)
    axes.set_xticks(places, names, **({"rotation": 90} if size.narrow or count > 8 else slanted))
    if shared:
        axes.set_xlabel(shared.rstrip("/:"))
    _without_lines(axes)


def _shared_prefix(names: Sequence[str]) -> str:
    """The project, or the project and the name, of all masks, which need not stand in every label."""
    prefixes = sorted((names[0][: names[0].rfind(mark) + 1] for mark in "/:"), key=len, reverse=True)
    return next((prefix for prefix in prefixes if all(name.startswith(prefix) for name in names)), "")


LABELS = 40
"""Maximum number of layers, or masks, that are all labeled."""

FONT = 8.5
"""Size of the texts in cells."""

POINTS = 72.0
"""Points of an inch."""

_GLYPH = 0.62
"""Width of a digit, in font sizes."""


def heat_map(grid: Grid, theme: Theme, size: Size = WIDE) -> Figure:
    """A row for each layer, a column for each module; cells show density in percent, and are empty without a tensor.

    Colors run over the densities of nearly all coordinates, so that modules differ in color even where all are dense.
    Modules of which nothing moved have no color.
    """
    values, weights = table(grid)
    rows, columns = values.shape
    height = min(14.0 if size.narrow else 11.0, (2.4 if size.narrow else 1.7) + (0.24 if size.narrow else 0.27) * rows)
    figure = Figure(figsize=(size.width, height), layout="constrained")
    axes = figure.add_subplot()
    low, high = scale(values, weights)
    norm = Normalize(low, high)
    colors = np.zeros((rows, columns, 4))
    colors[values > 0] = mpl.colormaps[theme.heat](norm(values[values > 0]))
    _draw_cells(axes, colors, theme)
    axes.set_yticks(*_ticks(grid.layers))
    # A slanted label needs the width of a few cells.
    angle: dict[str, Any] = (
        {"rotation": 90} if size.narrow else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    )
    axes.set_xticks(np.arange(columns) + 0.5, [short(name) for name in grid.modules], **angle)
    axes.set_ylabel("layer")
    _without_lines(axes)
    shades = ScalarMappable(norm, theme.heat)
    color_key(figure, shades, values[values > 0], "density", size)
    room = (0.8 * size.width * POINTS / columns, (height - 1.6) * POINTS / rows)

    def color_of(row: int, column: int) -> str:
        return ink_on(np.asarray(shades.to_rgba(values[row, column])).tolist()) if values[row, column] else theme.ink

    _write(axes, values, written, room, color_of)
    return figure


def _draw_cells(axes: Any, colors: Values, theme: Theme | None) -> None:
    # One image, a pixel a cell: thousands of rectangles would make the page several times as large.
    rows, columns, _ = colors.shape
    axes.imshow(colors, extent=(0, columns, rows, 0), aspect="auto", interpolation="none")
    if theme is not None:
        axes.vlines(np.arange(1, columns), 0, rows, colors=theme.ground, linewidth=0.6)
        axes.hlines(np.arange(1, rows), 0, columns, colors=theme.ground, linewidth=0.6)


def _without_lines(axes: Any) -> None:
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def written(values: Values, room: tuple[float, float]) -> list[str] | None:
    """The densities as texts that fit into their cells: three digits, or two; None where no text fits."""
    shares = [100 * share for share in values.tolist()]
    return fitting(([three_digits(share) for share in shares], [_two_digits(share) for share in shares]), room)


def fitting(choices: Iterable[list[str]], room: tuple[float, float]) -> list[str] | None:
    """The first texts that fit into their cells, of which width and height are in points; None where none do."""
    for texts in choices:
        widest = max(map(len, texts), default=0) * _GLYPH * FONT
        if widest <= room[0] and room[1] >= 1.15 * FONT:
            return texts
    return None


def color_key(figure: Figure, shades: ScalarMappable, values: Values, label: str, size: Size) -> None:
    """The color scale beside a map, or above it on a phone, with an arrow where values lie beyond its ends."""
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


def _write(
    axes: Any,
    values: Values,
    texts_of: Callable[[Values, tuple[float, float]], list[str] | None],
    room: tuple[float, float],
    color_of: Callable[[int, int], str],
) -> None:
    cells = np.argwhere(~np.isnan(values))
    texts = texts_of(values[tuple(cells.T)], room)
    for (row, column), text in zip(cells.tolist(), texts or (), strict=bool(texts)):
        place = column + 0.5, row + 0.5
        axes.text(*place, text, ha="center", va="center", fontsize=FONT, color=color_of(row, column))


def _ticks(labels: tuple[str, ...]) -> tuple[list[float], list[str]]:
    stride = -(-len(labels) // LABELS)
    shown = range(0, len(labels), stride)
    return [row + 0.5 for row in shown], [labels[row] for row in shown]


def short(name: str, limit: int = 28) -> str:
    """The end of a name that is too long for a label."""
    return name if len(name) <= limit else f"…{name[1 - limit :]}"
