"""The manifest's totals, from the rows of the tensor table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from maskreg.artifact.manifest import FfnRatios, Group, Totals
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import module_of
from maskreg.mask import Counts, summarize


def six_digits(value: float) -> float:
    """Round to six significant digits: the last bits of sums of squares differ between machines."""
    return float(f"{value:.5e}")


def totals_of(rows: Iterable[Tensor]) -> Totals:
    """Sums over all tensors, by role, by layer, and the FFN ratios (rounded to six digits)."""
    summary = summarize(
        (t.role, t.layer, Counts(t.numel, t.nnz, t.differing, t.energy, t.nonfinite, t.nan, t.inf)) for t in rows
    )
    ratios = {k: None if v is None else six_digits(v) for k, v in dataclasses.asdict(summary.ffn).items()}
    return Totals(
        numel=summary.all.numel,
        nnz=summary.all.nnz,
        differing=summary.all.differing,
        energy=six_digits(summary.all.energy),
        nonfinite=summary.all.nonfinite,
        nan=summary.all.nan,
        inf=summary.all.inf,
        roles={k: Group(numel=c.numel, nnz=c.nnz) for k, c in summary.roles.items()},
        layers={k: Group(numel=c.numel, nnz=c.nnz) for k, c in summary.layers.items()},
        ffn=FfnRatios(**ratios),
    )


def grouped(rows: Iterable[Tensor], by: str) -> dict[str, Group]:
    """Coordinates by module or tensor, in the order of the table; tensors without a mask are left out.

    Args:
        rows: the tensor table.
        by: ``tensor``; or ``module``, which joins the tensors of all layers that have one name within their layer.
    """
    groups: dict[str, Group] = {}
    for row in rows:
        if row.numel:
            label = row.name if by == "tensor" else module_of(row.name, row.layer)
            before = groups.get(label, Group(numel=0, nnz=0))
            groups[label] = Group(numel=before.numel + row.numel, nnz=before.nnz + row.nnz)
    return groups
