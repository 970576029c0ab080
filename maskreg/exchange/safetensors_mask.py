"""Masks as a safetensors dictionary: for each tensor a BOOL tensor of its name and shape, true where it moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.safetensors.reader import open_path
from maskreg.exchange.base import Format, Masks, Written
from maskreg.exchange.boolean import masks_in
from maskreg.exchange.lineage import KEY, parse_lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import lineage_metadata, masks_written, one_file_plan, path_of, planned_output
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo

FILE_NAME = "masks.safetensors"
"""The file in an output that is a folder."""


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write every mask; see :class:`maskreg.exchange.base.Format`."""
    tensors = [TensorInfo(name, "BOOL", row.source_shape or ()) for name, row in update.masked.items()]
    plan = one_file_plan(update, out, FILE_NAME, tensors, lineage_metadata(update.mask_lineage()))
    with planned_output(update, plan, out, force=force) as writer:
        for name in update.masked:
            for bits in update.bits(name):
                writer.write(bits)
    return masks_written(update, path_of(writer), plan.total_bytes, writer.kept_files)


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Masks:
    """Open a file, or a folder with one or several; see :class:`maskreg.exchange.base.Reader`."""
    file = open_path(path, limits=limits)
    closing(file)
    lineage = parse_lineage(file.shards[0].metadata.get(KEY), str(path), limits) if file.shards else None
    return Masks(masks_in(file, source), lineage)


FORMAT = Format(
    name="safetensors-mask",
    holds="mask",
    accepts="a .safetensors file with a mask for each tensor, or a folder with one",
    write=write,
    read=read,
)
"""The line of the table of formats."""
