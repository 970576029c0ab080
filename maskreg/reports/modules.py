"""A mask as a grid of layers and modules: the density of each matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
