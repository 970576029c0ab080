"""Figures of many matrices aggregated: over all, by role, by layer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from maskreg.analysis.overlap import ratio
from maskreg.checkpoint.roles import module_of
from maskreg.document import checked
from maskreg.result import Result

Figures = Mapping[str, float | None]


@dataclass(frozen=True)
class MatrixRow:
    """Figures of one matrix: of the update, of the rounding null (empty where undefined), and by chance.

    ``moved`` counts coordinates by rule.
    """

    figures: Figures
    null: Figures
    chance: Figures
    moved: Mapping[str, int]


@dataclass(frozen=True)
class TensorRow(Result):
    """Figures of one tensor, vectors included, as ``analysis.json`` has them.

    Attributes:
        name, role, layer, shape: the tensor.
        numel: its coordinates.
        moved: coordinates that moved, by rule.
        null_moved: the same under the rounding null; None where it is undefined.
        energies: sums of squares of source, update and null update (None where the null is undefined).
        top_energies: energy of the update in the coordinates that moved farthest, and of the null update (empty where
            the null is undefined), by figure.
        scale: the null's noise has standard deviation ``2^(scale / 2^20)``; None where the null is undefined.
        merged: number of its matrices in which a merged adapter is suspected.
        matrices: one for a matrix, one for each expert of a stack, none for a vector.
        notes: caveats.
    """

    name: str
    role: str
    layer: str
    shape: tuple[int, ...]
    numel: int
    moved: Mapping[str, int]
    null_moved: Mapping[str, int] | None
    energies: tuple[float, float, float | None]
    top_energies: tuple[Mapping[str, float], Mapping[str, float]]
    scale: int | None
    merged: int = 0
    matrices: tuple[MatrixRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module that the tensor belongs to."""
        return module_of(self.name, self.layer)


def summarized(rows: Sequence[TensorRow]) -> dict[str, Any]:
    """Pooled numbers of all tensors, and every figure aggregated over their matrices."""
    matrices = [matrix for row in rows for matrix in row.matrices]
    names = dict.fromkeys(name for matrix in matrices for name in matrix.figures)
    return {"tensors": len(rows), **pooled(rows), "figures": {name: _aggregated(name, matrices) for name in names}}


def groups_of(document: Mapping[str, Any], by: str) -> Mapping[str, Mapping[str, Any]]:
    """Groups of an ``analysis.json``, each :func:`summarized`, by ``role``, ``layer``, ``module`` or ``tensor``."""
    if by in ("role", "layer"):
        return document[f"{by}s"]  # type: ignore[no-any-return]
    rows = checked(list[TensorRow], document["tensors"], "analysis.json: tensors")
    return grouped(rows, "name" if by == "tensor" else by)


def grouped(rows: Iterable[TensorRow], key: str) -> dict[str, dict[str, Any]]:
    """:func:`summarized` by ``role``, ``layer``, ``module`` or ``name``, with each group's share of all."""
    rows = list(rows)
    groups: dict[str, list[TensorRow]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, key)].append(row)
    whole = pooled(rows)
    summaries = {label: summarized(members) for label, members in groups.items()}
    return {label: {**summary, **shares_of(summary, whole)} for label, summary in summaries.items()}


def shares_of(group: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """A group's shares of the coordinates and of the energy, and the one over the other; the same of the null."""
    of_params = ratio(group["numel"], whole["numel"])
    of_energy = {side: _over(group["energy"][side], whole["energy"][side]) for side in ("value", "null")}
    lift = {side: _over(share, of_params) for side, share in of_energy.items()}
    return {"param_share": of_params, "energy_share": of_energy, "energy_lift": lift}


def pooled(rows: Sequence[TensorRow]) -> dict[str, Any]:
    """Sparsity and relative norm over all coordinates, vectors included, beside the rounding null's.

    Where the null is undefined, because nothing or everything moved, the update itself stands in for it.
    """
    numel = sum(row.numel for row in rows)
    rules = rows[0].moved if rows else {}
    sparsity = {}
    for rule in rules:
        real = sum(row.moved[rule] for row in rows)
        null = sum((row.moved if row.null_moved is None else row.null_moved)[rule] for row in rows)
        sparsity[rule] = {"value": ratio(numel - real, numel), "null": ratio(numel - null, numel)}
    weights = sum(row.energies[0] for row in rows)
    update = sum(row.energies[1] for row in rows)
    null_update = sum(row.energies[1] if row.energies[2] is None else row.energies[2] for row in rows)
    null_tops = [row.top_energies[row.energies[2] is not None] for row in rows]
    tops = {
        name: {
            "value": _over(sum(row.top_energies[0].get(name, 0.0) for row in rows), update),
            "null": _over(sum(top.get(name, 0.0) for top in null_tops), null_update),
        }
        for name in dict.fromkeys(name for row in rows for name in row.top_energies[0])
    }
    return {
        "numel": numel,
        "energy": {"value": update, "null": null_update},
        "concentration": tops,
        "moved": {rule: sum(row.moved[rule] for row in rows) for rule in rules},
        "sparsity": sparsity,
        "relative_norm": {
            "value": math.sqrt(update / weights) if weights > 0 else None,
            "null": math.sqrt(null_update / weights) if weights > 0 else None,
        },
    }


def _over(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _aggregated(name: str, matrices: Sequence[MatrixRow]) -> dict[str, float | int | None]:
    # Null and chance only of matrices that have the figure: otherwise their means would be over different matrices.
    defined = [m for m in matrices if m.figures.get(name) is not None]
    values = [m.figures[name] or 0.0 for m in defined]
    null = [m.null[name] or 0.0 for m in defined if m.null.get(name) is not None]
    chance = [m.chance[name] or 0.0 for m in defined if m.chance.get(name) is not None]
    result: dict[str, float | int | None] = {
        "matrices": len(values),
        "mean": fmean(values) if values else None,
        "median": median(values) if values else None,
        "max": max(values, default=None),
        "null_matrices": len(null),
        "null_mean": fmean(null) if null else None,
        "null_median": median(null) if null else None,
        "null_max": max(null, default=None),
        "chance": fmean(chance) if chance else None,
    }
    _, at, rule = name.rpartition("@")
    if at:
        weights = [m.moved[rule] for m in defined]
        result["weighted"] = _weighted(values, weights)
        result["null_weighted"] = _weighted(null, [m.moved[rule] for m in defined if m.null.get(name) is not None])
    return result


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float | None:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights) if sum(weights) else None
