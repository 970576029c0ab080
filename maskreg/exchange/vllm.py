"""vLLM's sparse weight patches as files: what its ``sparse_nccl`` engine sends, chunk by chunk.

A patch is a checkpoint name, the full shape, flat indices and values. vLLM has no file for them, so this one is ours::

    patches.index.json              {"chunks": [{"file": ..., "names": [...], "dtype_names": [...], "shapes": [...],
                                                 "num_updates_list": [...]}, ...]}
    patches-00000-of-00002.safetensors      0.indices, 0.values, 1.indices, ... : in the order of the chunk's lists

The lists are those of the engine's update info, and a chunk is what one ``send_weight_chunk`` takes. Its size is
bounded: the patch of a large tensor goes on in the next chunk, with larger indices. Indices are I32, as the engine
has them; of a tensor of more than 2^31 elements I64, which only vLLM's loader takes. vLLM marks elements that stay
with NaN, so NaN cannot be a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.companions import is_plain_name
from maskreg.checkpoint.files import read_whole
from maskreg.checkpoint.safetensors.header import build_shard
from maskreg.checkpoint.safetensors.reader import open_path
from maskreg.checkpoint.safetensors.writer import SafetensorsPlan, SafetensorsWriter
from maskreg.errors import FormatError, UsageError
from maskreg.exchange.base import Format, Values, Written
from maskreg.exchange.incoming import parse_document, require_folder, target_of, tensor_of
from maskreg.exchange.lineage import KEY, parse_lineage
from maskreg.exchange.outgoing import ChangedSpan, Outgoing
from maskreg.exchange.output import json_file, path_of, planned_output, sources_of, values_written
from maskreg.exchange.sparse import (
    INDEX_DTYPES,
    INDICES,
    VALUES,
    SparsePatch,
    SparseSpan,
    StoredPiece,
    changes_of,
    counted_changes,
    index_dtype,
    is_nan,
    stored_pair,
)
from maskreg.limits import Limits
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown
from maskreg.words import listed

INDEX = "patches.index.json"
"""The document that lists the chunks."""

CHUNK_BYTES = 256 << 20
"""Bytes of indices and values of one chunk at most."""

DTYPE_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
"""What vLLM calls the dtypes that a patch may have."""

_LISTS = ("names", "dtype_names", "shapes", "num_updates_list")


class _Patch(NamedTuple):
    """A part of a tensor's changes: all that one chunk holds of it.

    Attributes:
        info: the tensor.
        first: number of the first change.
        number: how many.
    """

    info: TensorInfo
    first: int
    number: int


def write(update: Outgoing, out: Path, *, force: bool, chunk_bytes: int = CHUNK_BYTES) -> Written:
    """Write the patches of an update; see :class:`maskreg.exchange.base.Format`.

    Args:
        update: what to write.
        out: the folder.
        force: replace an earlier one.
        chunk_bytes: bytes of indices and values of one chunk at most.
    """
    if chunk_bytes < 1 << 10:
        raise UsageError(f"chunks of {chunk_bytes} bytes", hint="give them a kilobyte or more")
    for info in update.changed.values():
        if info.dtype not in DTYPE_NAMES:
            raise UsageError(
                f"tensor {info.name} is {info.dtype}; vLLM patches floating-point tensors alone", hint="use --to slime"
            )
    chunks = list(planned(update.changed.values(), update.counts, chunk_bytes))
    plan = _plan(update, chunks)
    with planned_output(update, plan, out, force=force) as writer:
        chunk_writer = _ChunkWriter(plan, chunks, writer)
        for info, changes, before in counted_changes(update, _changes):
            chunk_writer.write(info, changes, before)
    written = values_written(update, path_of(writer), plan.total_bytes, writer.kept_files, holds_files=True)
    return replace(written, notes=(*written.notes, *_notes(update)))


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Values:
    """Open a folder; see :class:`maskreg.exchange.base.Reader`."""
    require_folder(path, FORMAT.accepts)
    document = parse_document(read_whole(path / INDEX, limits.index_json_bytes), path / INDEX, limits)
    chunks = document.get("chunks")
    if not isinstance(chunks, list):
        raise FormatError(f"{path / INDEX}: chunks must be a list")
    pieces: dict[str, list[StoredPiece]] = {}
    for chunk in chunks:
        _check_chunk(chunk, path / INDEX)
        file = open_path(path / chunk["file"], limits=limits)
        closing(file)
        rows = list(zip(*(chunk[key] for key in _LISTS), strict=True))
        for number, (name, dtype, shape, count) in enumerate(rows):
            info = tensor_of(source, name)
            if dtype != DTYPE_NAMES.get(info.dtype) or shape != list(info.shape):
                raise FormatError(
                    f"tensor {name}: a patch of {shown(dtype)} {shown(shape)}; "
                    f"the source has {info.dtype} {list(info.shape)}"
                )
            names = f"{number}{INDICES}", f"{number}{VALUES}"
            if any(array not in file.tensors for array in names):
                raise FormatError(f"tensor {name}: {chunk['file']} lacks its indices or values")
            piece = StoredPiece(file, *names, info, allow_nan=False)
            if piece.count != count:
                raise FormatError(f"tensor {name}: {piece.count:,} indices where {shown(count)} are listed")
            pieces.setdefault(name, []).append(piece)
    patches = {name: SparsePatch(source.tensors[name], parts) for name, parts in pieces.items()}
    lineage = parse_lineage(document.get(KEY), str(path / INDEX), limits)
    return Values(target_of(source, patches, path, lineage, (), limits), lineage)


def planned(infos: Any, counts: Mapping[str, int], chunk_bytes: int) -> Iterator[list[_Patch]]:
    """Chunks of patches that hold all changes, each of at most so many bytes.

    Args:
        infos: the tensors, in order.
        counts: changes of each, by name.
        chunk_bytes: bytes of indices and values of a chunk.
    """
    chunk: list[_Patch] = []
    room = chunk_bytes
    for info in infos:
        width = np.dtype(INDEX_DTYPES[index_dtype(info.numel)]).itemsize + info.item_bytes
        done = 0
        while done < counts[info.name]:
            if room < width:
                yield chunk
                chunk, room = [], chunk_bytes
            count = min(counts[info.name] - done, room // width)
            chunk.append(_Patch(info, done, count))
            done, room = done + count, room - count * width
    if chunk:
        yield chunk


def _plan(update: Outgoing, chunks: list[list[_Patch]]) -> SafetensorsPlan:
    names = [f"patches-{n:05d}-of-{len(chunks):05d}.safetensors" for n in range(len(chunks))]
    shards = []
    for name, chunk in zip(names, chunks, strict=True):
        tensors = [stored for n, patch in enumerate(chunk) for stored in stored_pair(str(n), patch.info, patch.number)]
        shards.append(build_shard(name, tensors, {"format": "pt"}))
    document = {
        "chunks": [
            {
                "file": name,
                "names": [patch.info.name for patch in chunk],
                "dtype_names": [DTYPE_NAMES[patch.info.dtype] for patch in chunk],
                "shapes": [list(patch.info.shape) for patch in chunk],
                "num_updates_list": [patch.number for patch in chunk],
            }
            for name, chunk in zip(names, chunks, strict=True)
        ],
        KEY: update.lineage(),
    }
    files = {**update.files, INDEX: json_file(document)}
    return SafetensorsPlan(shards=tuple(shards), files=files, sources=sources_of(update))


class _ChunkWriter:
    """Writes the changes of each tensor to where they belong: into one chunk, or on through several."""

    def __init__(self, plan: SafetensorsPlan, chunks: list[list[_Patch]], writer: SafetensorsWriter) -> None:
        self._writer = writer
        self._parts: dict[str, list[tuple[_Patch, int, int]]] = {}
        offset = 0
        for shard, chunk in zip(plan.shards, chunks, strict=True):
            starts = {}
            for info in shard.tensors:
                starts[info.name] = offset
                offset += info.nbytes
            for n, patch in enumerate(chunk):
                part = (patch, starts[f"{n}{INDICES}"], starts[f"{n}{VALUES}"])
                self._parts.setdefault(patch.info.name, []).append(part)

    def write(self, info: TensorInfo, changes: SparseSpan, done: int) -> None:
        """Write some changes of a tensor, of which ``done`` were written before."""
        indices = changes.indices.astype(INDEX_DTYPES[index_dtype(info.numel)])
        for patch, index_at, value_at in self._parts.get(info.name, ()):
            first, last = max(done, patch.first), min(done + indices.size, patch.first + patch.number)
            for data, offset in ((indices, index_at), (changes.values, value_at)):
                part = np.ascontiguousarray(data[first - done : max(first, last) - done])
                self._writer.write_at(offset + (first - patch.first) * data.itemsize, part)


def _changes(span: ChangedSpan) -> SparseSpan:
    changes = changes_of(span)
    nan = is_nan(changes.values, span.info.dtype)
    if nan.any():
        raise UsageError(
            f"tensor {span.info.name}: element {int(changes.indices[nan][0])} becomes NaN, "
            "which vLLM reserves for elements that stay",
            hint="use --to slime",
        )
    return changes


def _notes(update: Outgoing) -> tuple[str, ...]:
    large = [info.name for info in update.changed.values() if index_dtype(info.numel) == "I64"]
    if not large:
        return ()
    return (
        f"indices of 64 bits, for more than 2^31 elements: {listed(large, 3)}; vLLM's loader takes them, its NCCL "
        "engine does not",
    )


def _check_chunk(chunk: Any, path: Path) -> None:
    if not isinstance(chunk, dict) or not all(isinstance(chunk.get(key), list) for key in _LISTS):
        raise FormatError(f"{path}: a chunk must have the lists {', '.join(_LISTS)}")
    if len({len(chunk[key]) for key in _LISTS}) > 1:
        raise FormatError(f"{path}: the lists of a chunk have different lengths")
    name = chunk.get("file")
    if not isinstance(name, str) or not is_plain_name(name) or not name.endswith(".safetensors"):
        raise FormatError(f"{path}: not the plain name of a file: {shown(name)}")
    for name in chunk["names"]:
        if not isinstance(name, str):
            raise FormatError(f"{path}: not the name of a tensor: {shown(name)}")


FORMAT = Format(
    name="vllm",
    holds="values",
    accepts=f"a folder with {INDEX} and the files that it names",
    write=write,
    read=read,
    options={"chunk_bytes": CHUNK_BYTES},
)
"""The line of the table of formats."""
