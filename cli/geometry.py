"""The figures of an analysis and of a trajectory as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskreg.ref import printable
from maskreg.words import counted, natural

from .table import Row, table

_COLUMNS = ("mean", "median", "max", "weighted")
_HEADLINES = (
    ("stable rank", "stable_rank"),
    ("top 16", "energy_top_16"),
    ("angle 16", "angle_max_u_16"),
    ("NSS", "nss"),
    ("proj. lift .10", "projection_lift_0.10"),
    ("low", "low_dssu_0.10@exact"),
    ("low", "low_geo_0.30@rel:0.001"),
    ("low", "low_small_0.30@exact"),
    ("principal", "principal_dssu_0.10@exact"),
    ("principal", "principal_geo_0.30@rel:0.001"),
    ("principal", "principal_small_0.30@exact"),
)
_GROUPS = {"role": "roles", "layer": "layers"}
_POINT = (
    ("density", "density"),
    ("step density", "step_density"),
    ("update norm", "update_norm"),
    ("step norm", "step_norm"),
    ("rel. norm", "relative_norm"),
    ("stable rank", "stable_rank"),
    ("similarity", "similarity_to_final"),
)


def geometry(name: str, digest: str, document: Mapping[str, Any], by: str) -> str:
    """An analysis: pooled numbers, every figure over all matrices, then one line for each role, layer or tensor.

    Args:
        name: of the analysis.
        digest: of the analysis.
        document: its ``analysis.json``.
        by: ``role``, ``layer`` or ``tensor``.
    """
    total = document["total"]
    groups = _by_tensor(document) if by == "tensor" else document[_GROUPS[by]]
    lines = [
        f"{'name':<12} {name}",
        f"{'digest':<12} {digest}",
        f"{'of':<12} {document['of']}",
        f"{'tensors':<12} {total['tensors']:,}, {counted(total['numel'], 'coordinate')}",
        "",
        *_pooled(total),
        "",
        *_figures(total["figures"]),
        "",
        f"by {by}: mean (null)",
        *_by_group(groups),
        "",
        *(f"note: {note}" for note in document["notes"]),
    ]
    return "\n".join(map(printable, lines))


def trajectory(document: Mapping[str, Any]) -> str:
    """A trajectory: one line for each checkpoint."""
    rows: list[Row] = [("checkpoint", *(title for title, _ in _POINT))]
    rows += [(point["checkpoint"], *(_number(point[key]) for _, key in _POINT)) for point in document["checkpoints"]]
    chance = _number(document["similarity_by_chance"])
    legend = f"similarity: top {document['k']} right directions against the final update's; by chance {chance}"
    return "\n".join(map(printable, [*table(rows), "", legend]))


def _pooled(total: Mapping[str, Any]) -> list[str]:
    rows: list[Row] = [("pooled", "value", "null")]
    for rule, sparsity in sorted(total["sparsity"].items(), key=lambda item: item[0] != "exact"):
        rows.append((f"sparsity {rule}", _number(sparsity["value"]), _number(sparsity["null"])))
    norm = total["relative_norm"]
    return table([*rows, ("relative_norm", _number(norm["value"]), _number(norm["null"]))])


def _figures(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows: list[Row] = [("figure: value (null)", *_COLUMNS, "chance")]
    undefined = []
    for name in sorted(figures, key=_position):
        figure = figures[name]
        if figure["matrices"]:
            cells = [_with_null(figure, key, f"null_{key}") if key in figure else "-" for key in _COLUMNS]
            rows.append((name, *cells, _number(figure["chance"])))
        else:
            undefined.append(name)
    legend = [f"undefined for every matrix: {', '.join(undefined)}"] if undefined else []
    return [*table(rows), *legend]


def _by_group(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = {name for group in groups.values() for name in group["figures"]}
    # Several figures share a title; the first that was computed gets it.
    chosen = {title: name for title, name in reversed(_HEADLINES) if name in names}
    titles = [title for title in dict(_HEADLINES) if title in chosen]
    rows: list[Row] = [("", "numel", "sparsity", "rel. norm", *titles)]
    for label in sorted(groups, key=natural):
        group = groups[label]
        cells = [_with_null(group["figures"].get(chosen[title], {}), "mean", "null_mean") for title in titles]
        norm = _with_null(group["relative_norm"], "value", "null")
        sparsity = _with_null(group["sparsity"]["exact"], "value", "null")
        rows.append((label or "-", f"{group['numel']:,}", sparsity, norm, *cells))
    legend = [f"{title}: {chosen[title]}" for title in ("low", "principal") if title in chosen]
    return [*table(rows), *legend]


def _by_tensor(document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    from maskreg.analysis.aggregate import TensorRow, grouped

    return grouped([TensorRow.from_json(row) for row in document["tensors"]], "name")


def _position(name: str) -> tuple[object, ...]:
    # In the order of the glossary, numbers by size.
    from maskreg.analysis.glossary import position

    return (position(name), *natural(name))


def _with_null(figure: Mapping[str, Any], value: str, null: str) -> str:
    return f"{_number(figure.get(value))} ({_number(figure.get(null))})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
