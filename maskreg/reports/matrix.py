"""The heat map of many masks: the headroom of every pair, in the order of their matrix or survey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from maskreg.reports.drawing import Drawing
from maskreg.reports.heat import FONT, LABELS, POINTS, color_key, fitting, short
from maskreg.reports.shades import ink_on
from maskreg.reports.theme import WIDE, Size, Theme

if TYPE_CHECKING:
    from maskreg.analysis.pairwise import PairMatrix
    from maskreg.analysis.survey import Survey

    Square: TypeAlias = PairMatrix | Survey

_FADED = 0.3
"""Opacity of a pair without an answer."""


def headroom_map(matrix: Square, theme: Theme, size: Size = WIDE) -> Drawing:
    """A row and a column for each mask; cells show headroom in percent, and are empty on the diagonal.

    Zero is the gray in the middle of the color scale, whose ends are those of pairs with an answer. Pairs without one
    are faded: their masks are related, or it cannot be told.
    """
    count, values = len(matrix.order), matrix.headrooms[np.ix_(matrix.order, matrix.order)]
    answered = matrix.answered[np.ix_(matrix.order, matrix.order)]
    side = (size.width - (1.1 if size.narrow else 2.6)) / count
    height = min(11.0, (1.9 if size.narrow else 1.5) + count * min(side, 0.42))
    figure = Drawing(figsize=(size.width, height), layout="constrained")
    axes = figure.add_subplot()
    shades = ScalarMappable(_scale(values, answered), theme.heat)
    colors = shades.to_rgba(np.nan_to_num(values))
    colors[..., 3] = np.where(np.isnan(values), 0.0, np.where(answered, 1.0, _FADED))
    # One image, a pixel a cell: thousands of rectangles would make the page several times as large.
    axes.imshow(colors, extent=(0, count, count, 0), aspect="auto", interpolation="none")
    if count <= LABELS:
        axes.vlines(np.arange(1, count), 0, count, colors=theme.ground, linewidth=0.6)
        axes.hlines(np.arange(1, count), 0, count, colors=theme.ground, linewidth=0.6)
    _label(axes, matrix, size)
    color_key(figure, shades, values[~np.isnan(values)], "headroom", size)
    room = (0.72 * size.width * POINTS / count, (height - 1.6) * POINTS / count)
    _write(axes, values, answered, shades, room, theme.ink)
    return figure


def texts_of(values: npt.NDArray[np.float64], room: tuple[float, float]) -> list[str] | None:
    """Headrooms in percent that fit into their cells, with a decimal or without; None where none fit.

    Args:
        values: headrooms.
        room: width and height of a cell, in points.
    """
    shares = [100 * value for value in values.tolist()]
    return fitting(([_signed(share, digits) for share in shares] for digits in (1, 0)), room)


def _signed(value: float, digits: int) -> str:
    # Without the sign of a zero.
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _scale(values: npt.NDArray[np.float64], answered: npt.NDArray[np.bool_]) -> Normalize:
    """As far on either side of zero as the pairs with an answer, or else all pairs, go."""
    known = ~np.isnan(values)
    chosen = values[known & answered] if (known & answered).any() else values[known]
    end = max(float(np.abs(chosen).max(initial=0.0)), 1e-3)
    return Normalize(-end, end)


def _label(axes: Any, matrix: Square, size: Size) -> None:
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
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _shared_prefix(names: Sequence[str]) -> str:
    """The project, or the project and the name, of all masks, which need not stand in every label."""
    prefixes = sorted((names[0][: names[0].rfind(mark) + 1] for mark in "/:"), key=len, reverse=True)
    return next((prefix for prefix in prefixes if all(name.startswith(prefix) for name in names)), "")


def _write(
    axes: Any,
    values: npt.NDArray[np.float64],
    answered: npt.NDArray[np.bool_],
    shades: ScalarMappable,
    room: tuple[float, float],
    ink: str,
) -> None:
    cells = np.argwhere(~np.isnan(values))
    chosen = values[tuple(cells.T)]
    texts = texts_of(chosen, room)
    if texts is None:
        return
    for (row, column), value, text in zip(cells.tolist(), chosen, texts, strict=True):
        color = ink_on(np.asarray(shades.to_rgba(value)).tolist()) if answered[row, column] else ink
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=FONT, color=color)
