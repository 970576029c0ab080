"""Masks for safetensors' own loaders: for each tensor a BOOL tensor of its name and shape, true where it moved.

Read back, any dtype of zeros and ones is a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.safetensors import build_shard, open_path
from maskreg.errors import FormatError
from maskreg.exchange.base import KEY, Format, Masks, Written, parse_lineage
from maskreg.exchange.incoming import tensor_of
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import one_file_plan, planned_output
from maskreg.tensors.info import FLOAT, TensorInfo, blocks_of

_INTEGERS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64")
_ONES: Mapping[str, int] = {
    **dict.fromkeys(_INTEGERS, 1),
    "BF16": 0x3F80,
    "F16": 0x3C00,
    "F32": 0x3F80_0000,
    "F64": 0x3FF0_0000_0000_0000,
}
# The bits of 1, by the dtypes that a mask can have.

_NO_TARGET = "the output holds which coordinates moved and nothing of the target: read back, it is a mask"

FILE_NAME = "masks.safetensors"
"""The file in an output that is a folder."""


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write every mask; see :class:`maskreg.exchange.base.Format`."""
    plan = one_file_plan(update, out, FILE_NAME, _tensors(update), _metadata(update))
    with planned_output(update, plan, out, force=force) as writer:
        for bits in _bits(update):
            writer.write(bits)
    manifest = update.artifact.manifest
    is_all = manifest.kind != "delta" and manifest.target.root == manifest.source.root
    return Written(
        out=writer.out,
        tensors=len(update.masked),
        coordinates=sum(row.nnz for row in update.masked.values()),
        bytes=plan.total_bytes,
        kept_files=writer.kept_files,
        notes=() if is_all else (_NO_TARGET,),
    )


def pieces(update: Outgoing) -> Iterator[bytes]:
    """The file that :func:`write` writes, for a caller that sends it: the header, then the masks block by block."""
    yield build_shard(FILE_NAME, _tensors(update), _metadata(update)).header
    yield from (bits.tobytes() for bits in _bits(update))


def size_of(update: Outgoing, header: bytes) -> int:
    """Size in bytes of the file with this header."""
    return len(header) + sum(info.nbytes for info in _tensors(update))


def _tensors(update: Outgoing) -> list[TensorInfo]:
    return [TensorInfo(name, "BOOL", row.source_shape or ()) for name, row in update.masked.items()]


def _metadata(update: Outgoing) -> dict[str, str]:
    return {"format": "pt", KEY: update.mask_lineage()}


def _bits(update: Outgoing) -> Iterator[npt.NDArray[np.bool_]]:
    return (bits for name in update.masked for bits in update.bits(name))


def read(path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Masks:
    """Open a file, or a folder with one or several; see :class:`maskreg.exchange.base.Reader`."""
    file = open_path(path)
    closing(file)
    lineage = parse_lineage(file.shards[0].metadata.get(KEY), str(path)) if file.shards else None
    masks = {}
    for name, stored in file.tensors.items():
        info = tensor_of(source, name)
        if info.dtype not in FLOAT:
            raise FormatError(f"tensor {name}: a mask of {info.dtype}, which is not a floating-point dtype")
        if stored.shape != info.shape:
            shapes = f"a mask of shape {list(stored.shape)}; the source has {list(info.shape)}"
            raise FormatError(f"tensor {name}: {shapes}")
        if stored.dtype not in _ONES:
            raise FormatError(f"tensor {name}: {stored.dtype}, which is not a dtype of a mask")
        masks[name] = partial(_blocks, file, stored)
    return Masks(masks, lineage)


def _blocks(file: Checkpoint, stored: TensorInfo) -> Iterator[npt.NDArray[np.bool_]]:
    one = _ONES[stored.dtype]
    for start, stop in blocks_of(stored.numel):
        bits = file.read(stored.name, start, stop)
        moved: npt.NDArray[np.bool_] = bits == one
        wrong = bits[~moved & (bits != 0)]
        if wrong.size:
            fault = f"its mask has a value that is neither 0 nor 1 (bits {int(wrong[0]):#x})"
            raise FormatError(f"tensor {stored.name}: {fault}")
        yield moved


FORMAT = Format(
    name="safetensors-mask",
    holds="mask",
    accepts="a .safetensors file with a mask for each tensor, or a folder with one",
    write=write,
    read=read,
)
