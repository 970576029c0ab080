"""The heat map of a page: a table of figures whose cells have the colors of the reports."""

from __future__ import annotations

from dataclasses import dataclass

from maskreg.reports.modules import Grid
from maskreg.reports.shades import CIVIDIS, scale, table
from maskreg.words import three_digits


@dataclass(frozen=True)
class Cell:
    """Density of a module in a layer.

    Attributes:
        text: in percent; empty without a tensor.
        shade: number of its color; None where nothing moved, or without a tensor.
    """

    text: str
    shade: int | None


@dataclass(frozen=True)
class HeatMap:
    """A grid of densities.

    Attributes:
        modules: heads of the columns.
        rows: for each layer its label and its cells.
        low, high: densities at the ends of the color scale.
        shades: how many colors there are.
    """

    modules: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    low: float
    high: float
    shades: int = len(CIVIDIS)


def heat_map(grid: Grid) -> HeatMap | None:
    """The heat map of a mask; None for one without layers."""
    if not grid.cells:
        return None
    low, high = scale(*table(grid))

    def cell(layer: str, module: str) -> Cell:
        group = grid.cells.get((layer, module))
        if group is None:
            return Cell("", None)
        share = min(max((group.density - low) / (high - low), 0.0), 1.0)
        number = round(share * (len(CIVIDIS) - 1)) if group.nnz else None
        return Cell(three_digits(100 * group.density), number)

    rows = tuple((layer, tuple(cell(layer, module) for module in grid.modules)) for layer in grid.layers)
    return HeatMap(grid.modules, rows, low, high)
