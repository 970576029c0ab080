"""Sparse safetensors: for each changed tensor, ``{name}.indices`` and ``{name}.values``.

Indices are flat, in C order and ascending: I32 up to 2^31 elements, I64 beyond. Values have the tensor's dtype, and
hold the target's bits: ``tensor.view(-1)[indices] = values``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.safetensors.reader import open_path
from maskreg.errors import FormatError
from maskreg.exchange.base import Format, Values, Written
from maskreg.exchange.incoming import target_of, tensor_of
from maskreg.exchange.lineage import KEY, parse_lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import lineage_metadata, offsets_in, one_file_plan, path_of, planned_output, values_written
from maskreg.exchange.sparse import (
    INDEX_DTYPES,
    INDICES,
    VALUES,
    SparsePatch,
    StoredPiece,
    counted_changes,
    index_dtype,
    stored_pair,
)
from maskreg.limits import Limits
from maskreg.tensors.names import shown

FILE_NAME = "sparse.safetensors"
"""The file in an output that is a folder."""


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write the changed elements of every tensor; see :class:`maskreg.exchange.base.Format`."""
    counts = update.counts
    tensors = [stored for name, info in update.changed.items() for stored in stored_pair(name, info, counts[name])]
    plan = one_file_plan(update, out, FILE_NAME, tensors, lineage_metadata(update.lineage()))
    starts = offsets_in(plan)
    with planned_output(update, plan, out, force=force) as writer:
        for info, changes, before in counted_changes(update):
            indices = changes.indices.astype(INDEX_DTYPES[index_dtype(info.numel)])
            for suffix, data in ((INDICES, indices), (VALUES, changes.values)):
                writer.write_at(starts[info.name + suffix] + before * data.itemsize, np.ascontiguousarray(data))
    return values_written(update, path_of(writer), plan.total_bytes, writer.kept_files, holds_files=not writer.is_file)


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values:
    """Open a file, or a folder with one; see :class:`maskreg.exchange.base.Reader`."""
    file = open_path(path, limits=limits)
    closing(file)
    patches = {}
    for name in file.tensors:
        stem = name.removesuffix(INDICES)
        if stem == name:
            if not name.endswith(VALUES) or name.removesuffix(VALUES) + INDICES not in file.tensors:
                raise FormatError(f"tensor {shown(name)}: neither indices nor values of a tensor")
            continue
        if stem + VALUES not in file.tensors:
            raise FormatError(f"tensor {shown(stem)}: it has indices and no values")
        info = tensor_of(source, stem)
        patches[stem] = SparsePatch(info, [StoredPiece(file, name, stem + VALUES, info)])
    lineage = parse_lineage(file.shards[0].metadata.get(KEY), str(path), limits)
    return Values(target_of(source, patches, path, lineage, (), limits), lineage)


FORMAT = Format(
    name="sparse-safetensors",
    holds="values",
    accepts="a .safetensors file with NAME.indices and NAME.values, or a folder with one",
    write=write,
    read=read,
)
"""The line of the table of formats."""
