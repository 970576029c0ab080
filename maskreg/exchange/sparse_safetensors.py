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
from maskreg.checkpoint.safetensors.writer import SafetensorsWriter
from maskreg.errors import FormatError
from maskreg.exchange.base import Format, Values, Written
from maskreg.exchange.files import (
    file_notes,
    lineage_metadata,
    offsets_in,
    one_file_plan,
    target_of,
    tensor_of,
    value_notes,
)
from maskreg.exchange.lineage import KEY, parse_lineage
from maskreg.exchange.outgoing import Outgoing, require_count
from maskreg.exchange.sparse import INDEX_DTYPES, SparsePatch, SparseSpan, StoredPiece, changes_of, index_dtype
from maskreg.limits import Limits
from maskreg.space import filling
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown

FILE_NAME = "sparse.safetensors"
"""The file in an output that is a folder."""

_INDICES, _VALUES = ".indices", ".values"


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write the changed elements of every tensor; see :class:`maskreg.exchange.base.Format`."""
    counts = update.counts
    tensors = [form for name, info in update.changed.items() for form in _forms(info, counts[name])]
    plan = one_file_plan(update, out, FILE_NAME, tensors, lineage_metadata(update.lineage()))
    starts = offsets_in(plan)
    written = dict.fromkeys(update.changed, 0)
    with filling(out, plan.total_bytes), plan.writer(out, force=force) as writer:
        update.begin()
        for span, changes in update.map(changes_of):
            info, done = update.changed[span.name], written[span.name]
            written[span.name] += changes.indices.size
            # Before it is written, for it would reach into the bytes of the next tensor.
            if span.stop == info.numel or written[span.name] > counts[span.name]:
                require_count(span.name, counts[span.name], written[span.name])
            _write(writer, starts, info, changes, done)
        update.finish()
    return Written(
        out=writer.out,
        tensors=len(counts),
        coordinates=sum(counts.values()),
        bytes=plan.total_bytes,
        kept_files=writer.kept_files,
        notes=(*value_notes(update), *file_notes(update, holds_files=not writer.is_file)),
    )


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values:
    """Open a file, or a folder with one; see :class:`maskreg.exchange.base.Reader`."""
    file = open_path(path, limits=limits)
    closing(file)
    patches = {}
    for name in file.tensors:
        stem = name.removesuffix(_INDICES)
        if stem == name:
            if not name.endswith(_VALUES) or name.removesuffix(_VALUES) + _INDICES not in file.tensors:
                raise FormatError(f"tensor {shown(name)}: neither indices nor values of a tensor")
            continue
        if stem + _VALUES not in file.tensors:
            raise FormatError(f"tensor {shown(stem)}: it has indices and no values")
        info = tensor_of(source, stem)
        patches[stem] = SparsePatch(info, [StoredPiece(file, name, stem + _VALUES, info)])
    lineage = parse_lineage(file.shards[0].metadata.get(KEY), str(path), limits)
    return Values(target_of(source, patches, path, lineage, (), limits), lineage)


def _forms(info: TensorInfo, count: int) -> tuple[TensorInfo, TensorInfo]:
    return (
        TensorInfo(info.name + _INDICES, index_dtype(info.numel), (count,)),
        TensorInfo(info.name + _VALUES, info.dtype, (count,)),
    )


def _write(writer: SafetensorsWriter, starts: dict[str, int], info: TensorInfo, changes: SparseSpan, done: int) -> None:
    indices = changes.indices.astype(INDEX_DTYPES[index_dtype(info.numel)])
    for suffix, data in ((_INDICES, indices), (_VALUES, changes.values)):
        writer.write_at(starts[info.name + suffix] + done * data.itemsize, np.ascontiguousarray(data))


FORMAT = Format(
    name="sparse-safetensors",
    holds="values",
    accepts="a .safetensors file with NAME.indices and NAME.values, or a folder with one",
    write=write,
    read=read,
)
"""The line of the table of formats."""
