"""The tensors of an artifact that a selection names, and parts of tensors that are fused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.selection import Part, Selection, Shape
from maskreg.errors import UsageError
from maskreg.mask.packed import nnz_of

_ALIGNED = 64
"""Masks are read from coordinates on that are multiples of this."""


def parts_of(rows: Iterable[Tensor], selection: Selection) -> tuple[Part, ...]:
    """What of some rows of a tensor table is selected, in their order.

    Raises:
        UsageError: no tensor is what the selection names, or a fused one cannot be split.
    """
    return selection.parts({row.name: row.source_shape or () for row in rows})


def selected_rows(
    artifact: Artifact, selection: Selection, besides: Mapping[str, Shape] | None = None
) -> tuple[Tensor, ...]:
    """The rows of an artifact that a selection names, in their order; all of them where it leaves nothing out.

    Args:
        artifact: whose.
        selection: which.
        besides: shapes of tensors, by name, that may be named too: those of another artifact.

    Raises:
        UsageError: no tensor is what the selection names, or a fused one cannot be split.
        PartAbsentError: a fused tensor is to be split, and the mask is not here.
    """
    if not selection:
        return artifact.tensors
    parts = selection.parts({**(besides or {}), **shapes_of(artifact)})
    return tuple(
        masked_row(artifact, part, artifact.by_name[part.tensor])
        for part in parts
        if part.tensor in artifact.by_name and artifact.by_name[part.tensor].name == part.tensor
    )


def shapes_of(artifact: Artifact) -> dict[str, Shape]:
    """The shape of every tensor that has a mask, by name; none for the others."""
    return {row.name: (row.source_shape or ()) if row.numel else () for row in artifact.tensors}


def row_of(part: Part, row: Tensor) -> Tensor:
    """The row that a part of a tensor would have in the tensor table, as far as its form goes.

    Args:
        part: the part; of all rows, the row itself is returned.
        row: of the tensor.
    """
    if part.name == part.tensor:
        return row
    shape = (part.stop - part.start, *(row.source_shape or ())[1:])
    return replace(row, name=part.name, source_shape=shape, target_shape=shape, numel=math.prod(shape))


def masked_row(artifact: Artifact, part: Part, row: Tensor) -> Tensor:
    """The same, with the part's bits of the mask and their number.

    Its energy and leaves are those of the whole tensor: only the mask's figures may be read from it.

    Raises:
        PartAbsentError: the part is not all of the tensor, and the artifact's mask is not here.
        UsageError: the part's bits cannot be read alone, because its rows are no multiple of 64 coordinates.
    """
    if part.name == part.tensor:
        return row
    start, numel = first_coordinate(part, row), row_of(part, row).numel
    if start % _ALIGNED or (numel % _ALIGNED and start + numel != row.numel):
        raise UsageError(
            f"{part.name} cannot be read alone: it ends or begins in {row.name} at no multiple of {_ALIGNED} "
            "coordinates",
            hint=f"--role {row.name.removesuffix('.weight').rpartition('.')[2]} takes it whole",
        )
    artifact.require("mask")
    nnz = nnz_of(artifact.mask_bits(row, start, start + numel))
    return replace(row_of(part, row), bit_offset=row.bit_offset + start, nnz=nnz)


def first_coordinate(part: Part, row: Tensor) -> int:
    """Where a part begins in its tensor, in C order."""
    return part.start * math.prod((row.source_shape or ())[1:])
