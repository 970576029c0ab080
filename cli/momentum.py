"""The figures of an optimizer's state as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from maskreg.analysis.glossary import written
from maskreg.ref import printable
from maskreg.words import counted, natural, whole

from .layout import folded, paragraph
from .table import Row
from .table import table as lines_of

_FIGURES = ("v_spread", "v_zero", "m_gradient", "m_update", "step_update")


def table(document: Mapping[str, Any], by: str | None, *, verbose: bool = False) -> str:
    """The mean of every figure over the weights, and pooled; then a line for each group.

    Args:
        document: what ``maskreg.moments`` returned.
        by: ``role``, ``layer`` or ``tensor``; None for none.
        verbose: every group.
    """
    if by == "module":
        raise click.UsageError("the state of an optimizer has no figures by module; use --by role, layer or tensor")
    total = document["total"]
    lines = [f"{counted(total['weights'], 'weight')}, {counted(total['numel'], 'coordinate')}", ""]
    rows: list[Row] = [("figure", "mean", "pooled", "weights")]
    for name in _FIGURES:
        figure = total["figures"][name]
        cells = (written(name, figure["mean"]), written(name, figure["pooled"]), whole(figure["weights"]))
        rows.append((name, *cells))
    lines += lines_of(rows)
    if by is not None:
        groups = document[f"{by}s"]
        ordered = {label: _means(groups[label]) for label in sorted(groups, key=natural)}
        kept, left_out = folded(ordered, lambda row: row["v_spread"], things=f"{by}s", by="v_spread", whole=verbose)
        titles: Row = (f"by {by}", *_FIGURES)
        lines += ["", *lines_of([titles, *((label, *_cells(row)) for label, row in kept.items())]), *left_out]
    lines += [""] if document["notes"] else []
    lines += [line for note in document["notes"] for line in paragraph(f"note: {note}", indent="  ")]
    return "\n".join(map(printable, lines))


def _means(group: Mapping[str, Any]) -> Mapping[str, float | None]:
    figures = group.get("figures")
    return group if figures is None else {name: figures[name]["mean"] for name in _FIGURES}


def _cells(row: Mapping[str, float | None]) -> Row:
    return tuple(written(name, row[name]) for name in _FIGURES)
