"""Shares that moved as a picture: a column for each step or layer, a row for each layer or module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from maskreg.artifact.manifest import Group
from maskreg.reports.modules import CIVIDIS, scale, shade

ROWS = 48
"""Rows of a map; more share some."""

_NAMED_ROWS = 24
_CELL_WIDTH, _CELL_HEIGHTS = 16, (12, 28)  # of a cell where there is room, and its least and greatest height, in pixels
_HEIGHT = 240  # of all rows, where cells of such heights allow it


@dataclass(frozen=True)
class Map:
    """A picture of shares.

    Attributes:
        labels: of the rows; empty for one that is not named.
        low, high: the shares at the ends of the color scale.
    """

    svg: Markup
    labels: tuple[str, ...]
    low: float
    high: float


def map_of(
    columns: Sequence[Mapping[str, Group]], names: Sequence[str], label: str, anchors: Sequence[int] = ()
) -> Map | None:
    """The groups of each column by the names of rows, with a line down each anchor; None where there are no rows."""
    if not names:
        return None
    stride = -(-len(names) // ROWS)
    rows = [names[at : at + stride] for at in range(0, len(names), stride)]
    cells = {
        (x, y): Group(numel=sum(each.numel for each in groups), nnz=sum(each.nnz for each in groups))
        for x, column in enumerate(columns)
        for y, row in enumerate(rows)
        if (groups := [column[name] for name in row if name in column])
    }
    low, high = scale(np.array([c.density for c in cells.values()]), np.array([c.numel for c in cells.values()]))
    paths: dict[str, str] = defaultdict(str)
    for (x, y), cell in cells.items():
        paths[CIVIDIS[shade(cell.density, low, high)]] += f"M{x} {y}h1v1h-1z"
    lines = "".join(f"M{x}.5 0v{len(rows)}" for x in anchors)
    drawn = Markup("").join(Markup('<path fill="{}" d="{}"/>').format(*path) for path in sorted(paths.items()))
    step = -(-len(rows) // _NAMED_ROWS)
    size = len(columns) * _CELL_WIDTH, len(rows) * min(max(_HEIGHT // len(rows), _CELL_HEIGHTS[0]), _CELL_HEIGHTS[1])
    svg = Markup(
        '<svg viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="{2}" height="{3}" role="img" '
        'shape-rendering="crispEdges" aria-label="{4}">{5}<path class="anchor" d="{6}"/></svg>'
    ).format(len(columns), len(rows), *size, label, drawn, lines)
    return Map(svg, tuple(row[0] if not at % step else "" for at, row in enumerate(rows)), low, high)
