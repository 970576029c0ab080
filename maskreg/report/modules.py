"""A mask as layers times modules: which part of each matrix moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from maskreg.artifact.manifest import Group, Tensor
from maskreg.words import natural

MOST_MODULES = 24
"""Modules beyond these, the smallest, share one column."""

REST = "other"

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True)
class Grid:
    """Counts by layer and module.

    Attributes:
        layers: labels, in the order of the model.
        modules: labels, in the order of the model.
        cells: by (layer, module); what no tensor fills is missing.
        outside: tensors that belong to no layer, by name.
    """

    layers: tuple[str, ...]
    modules: tuple[str, ...]
    cells: dict[tuple[str, str], Group]
    outside: dict[str, Group]


def grid_of(rows: Iterable[Tensor]) -> Grid:
    """Add up tensors by layer and module; stacked or numbered experts of a layer are one module."""
    cells: dict[tuple[str, str], Group] = {}
    outside: dict[str, Group] = {}
    for row in rows:
        if not row.numel:
            continue
        group = Group(numel=row.numel, nnz=row.nnz)
        if row.layer:
            place = row.layer, module_of(row.name, row.layer)
            cells[place] = _sum([cells[place], group]) if place in cells else group
        else:
            outside[row.name] = group
    cells = _folded(cells)
    layers = in_order({layer for layer, _ in cells})
    # In the order of first appearance, with what was folded at the end.
    modules = sorted(dict.fromkeys(module for _, module in cells), key=lambda module: module == REST)
    return Grid(layers, tuple(modules), cells, outside)


def in_order(layers: Iterable[str]) -> tuple[str, ...]:
    """Labels of layers as the model has them: 2 before 10, other towers after the language model."""
    return tuple(sorted(layers, key=natural))


def module_of(name: str, layer: str) -> str:
    """What a tensor is called within its layer, without ``.weight``; numbers within it are ``*``."""
    number = layer.rpartition(".")[2]
    inner = re.split(rf"\.{number}(?=\.|$)", name, maxsplit=1)[-1].strip(".")
    return _NUMBER.sub("*", inner.removesuffix(".weight")) or name


def _folded(cells: dict[tuple[str, str], Group]) -> dict[tuple[str, str], Group]:
    sizes: dict[str, int] = {}
    for (_, module), group in cells.items():
        sizes[module] = sizes.get(module, 0) + group.numel
    if len(sizes) <= MOST_MODULES:
        return cells
    kept = set(sorted(sizes, key=lambda module: -sizes[module])[: MOST_MODULES - 1])
    found: dict[tuple[str, str], list[Group]] = {}
    for (layer, module), group in cells.items():
        found.setdefault((layer, module if module in kept else REST), []).append(group)
    return {place: _sum(groups) for place, groups in found.items()}


def _sum(groups: Sequence[Group]) -> Group:
    return Group(numel=sum(g.numel for g in groups), nnz=sum(g.nnz for g in groups))
