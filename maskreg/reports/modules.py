"""A mask as a grid of layers and modules: the density of each matrix, and the colors of its heat map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Group
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import module_of
from maskreg.words import natural

MOST_MODULES = 24
"""Maximum number of columns; the smallest modules beyond it share one."""

REST = "other"


@dataclass(frozen=True)
class Grid:
    """Counts by layer and module.

    Attributes:
        cells: by (layer, module); absent where there is no tensor.
    """

    layers: tuple[str, ...]
    modules: tuple[str, ...]
    cells: dict[tuple[str, str], Group]
    outside: dict[str, Group]


def grid_of(rows: Iterable[Tensor]) -> Grid:
    """Sum tensors by layer and module; stacked or numbered experts of a layer are one module."""
    cells: dict[tuple[str, str], Group] = {}
    outside: dict[str, Group] = {}
    for row in rows:
        if not row.numel:
            continue
        group = Group(numel=row.numel, nnz=row.nnz)
        if row.layer:
            cell = row.layer, module_of(row.name, row.layer)
            cells[cell] = _sum([cells[cell], group]) if cell in cells else group
        else:
            outside[row.name] = group
    cells = _folded(cells)
    layers = in_order({layer for layer, _ in cells})
    # In order of first appearance, the shared column last.
    modules = sorted(dict.fromkeys(module for _, module in cells), key=lambda module: module == REST)
    return Grid(layers, tuple(modules), cells, outside)


def in_order(layers: Iterable[str]) -> tuple[str, ...]:
    """Labels of layers in the order of the model: 2 before 10, other towers after the language model."""
    return tuple(sorted(layers, key=natural))


def _folded(cells: dict[tuple[str, str], Group]) -> dict[tuple[str, str], Group]:
    sizes: dict[str, int] = {}
    for (_, module), group in cells.items():
        sizes[module] = sizes.get(module, 0) + group.numel
    if len(sizes) <= MOST_MODULES:
        return cells
    kept = set(sorted(sizes, key=lambda module: -sizes[module])[: MOST_MODULES - 1])
    folded: dict[tuple[str, str], list[Group]] = {}
    for (layer, module), group in cells.items():
        folded.setdefault((layer, module if module in kept else REST), []).append(group)
    return {cell: _sum(groups) for cell, groups in folded.items()}


def _sum(groups: Sequence[Group]) -> Group:
    return Group(numel=sum(g.numel for g in groups), nnz=sum(g.nnz for g in groups))


Values = npt.NDArray[np.float64]

CIVIDIS = (
    "#00224e", "#00285b", "#002e6a", "#053371", "#1a386f", "#273e6e", "#32436d", "#3b496c", "#434e6c", "#4b546c",
    "#535a6d", "#5a5f6e", "#61656f", "#686a71", "#6f7073", "#767676", "#7d7c78", "#848279", "#8c8878", "#938e78",
    "#9b9476", "#a39a74", "#aba072", "#b4a76f", "#bcae6c", "#c4b468", "#cdbb63", "#d5c25e", "#dec958", "#e7d150",
    "#f0d846", "#f9e03a", "#fee838",
)  # fmt: skip
"""The color map of :mod:`maskreg.reports.theme`, in 33 even steps: even in brightness, and for color-blind readers."""

_TAIL = 0.005
"""Share of the coordinates at either end that the color scale leaves out: small norms must not flatten it."""


def scale(values: Values, weights: Values) -> tuple[float, float]:
    """The lowest and the highest density of all but the outermost coordinates: the ends of the color scale.

    Args:
        values: densities; NaN without a tensor. Zero densities do not count.
        weights: coordinates of each.
    """
    present = values > 0
    if not present.any():
        return 0.0, 1.0
    order = np.argsort(values[present])
    densities, counts = values[present][order], weights[present][order]
    below = np.cumsum(counts) / counts.sum()
    low = float(densities[np.searchsorted(below, _TAIL)])
    high = float(densities[min(int(np.searchsorted(below, 1 - _TAIL)), len(densities) - 1)])
    if high - low < 1e-3:
        low, high = max(0.0, low - 5e-4), high + 5e-4
    return low, high


def shade(value: float, low: float, high: float) -> int:
    """Which of the colors stands for a value between the ends of a scale, or beyond them."""
    return round(min(max((value - low) / (high - low or 1.0), 0.0), 1.0) * (len(CIVIDIS) - 1))


def table(grid: Grid) -> tuple[Values, Values]:
    """Density and coordinates of every cell: a row a layer, a column a module; NaN without a tensor."""
    values = np.full((len(grid.layers), len(grid.modules)), np.nan)
    weights = np.zeros(values.shape)
    rows, columns = ({label: at for at, label in enumerate(labels)} for labels in (grid.layers, grid.modules))
    for (layer, module), group in grid.cells.items():
        values[rows[layer], columns[module]] = group.density
        weights[rows[layer], columns[module]] = group.numel
    return values, weights


def channels(color: str) -> tuple[float, float, float]:
    """Red, green and blue of ``#rrggbb``, each from 0 to 1."""
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def ink_on(color: Sequence[float]) -> str:
    """Black or white, whichever has more contrast with a color (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Not the page's white, which turns dark at night; cells do not.
    return "#fffffe" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000000"
