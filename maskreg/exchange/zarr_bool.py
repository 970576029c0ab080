"""Masks as a Zarr v3 group with a boolean array for each tensor, which any Zarr reader opens.

An array has its tensor's name, where that can be the name of a folder, and else a number; its attribute ``tensor`` has
the name in any case. Chunks lie in C order: whole trailing dimensions, a part of one, single steps of those before::

    shape (64, 4096, 1536)  ->  chunks (1, 2730, 1536)      elements 0..4M, 4M..6M, then those of the next step

So they are written one after another. Other tools' chunks may have any shape; rows of them along the first dimension
are put together in memory. Codecs: bytes, and zstd or none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maskreg.artifact.zstd import content_bytes, pack_frame, unpack_frame
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.companions import is_plain_name
from maskreg.checkpoint.files import read_whole
from maskreg.document import canonical, parse_object
from maskreg.errors import CorruptError, DataError, FormatError, LimitError, NotFoundError, prefixed
from maskreg.exchange.base import BoolSpans, Format, Masks, Written
from maskreg.exchange.boolean import as_bool, require_maskable
from maskreg.exchange.incoming import require_folder, tensor_of
from maskreg.exchange.lineage import KEY, parse_lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.output import masks_written, new_folder
from maskreg.limits import Limits
from maskreg.tensors.blocks import BLOCK_NUMEL
from maskreg.tensors.names import check_name, shown

if TYPE_CHECKING:
    import numpy.typing as npt

METADATA = "zarr.json"
"""The metadata of a group or an array."""

_TENSOR = "tensor"
_ROW_NUMEL = 1 << 30
"""Elements of a chunk, or of a row of chunks, that are held in memory at most."""
_CHUNKS = 1 << 20
"""Chunks of one array."""
_NAME_BYTES = 200
_ZSTD_LEVEL = 1
_DTYPES = ("bool", "uint8", "int8")

Shape = tuple[int, ...]


def write(update: Outgoing, out: Path, *, force: bool) -> Written:
    """Write every mask; see :class:`maskreg.exchange.base.Format`."""
    keys = _keys(update.masked)
    names = {METADATA, *(f"{key}/" for key in keys.values())}
    numel = sum(row.numel for row in update.masked.values())
    group = {"zarr_format": 3, "node_type": "group", "attributes": {KEY: update.mask_lineage()}}
    with new_folder(update, out, weights=METADATA, names=names, needed_bytes=numel // 8, force=force) as pending:
        size = _write(pending.work / METADATA, canonical(group))
        for name, row in update.masked.items():
            size += _write_array(pending.work / keys[name], name, row.source_shape or (), update.bits(name))
    return masks_written(update, pending.path, size, pending.kept)


def read(path: Path, source: Checkpoint, limits: Limits, closing: Callable[[Any], Any]) -> Masks:
    """Open a group; see :class:`maskreg.exchange.base.Reader`."""
    require_folder(path, FORMAT.accepts)
    group = _document(path / METADATA, limits.tensors_json_bytes, limits)
    attributes = group.get("attributes", {})
    if group.get("node_type") != "group" or not isinstance(attributes, dict):
        raise FormatError(f"{path / METADATA}: not the metadata of a group")
    masks: dict[str, BoolSpans] = {}
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        if len(masks) >= limits.tensors:
            raise LimitError(f"{path}: more than {limits.tensors} arrays")
        name, array = _opened(folder, source, limits)
        if name in masks:
            raise FormatError(f"tensor {shown(name)}: two arrays are its mask")
        masks[name] = partial(_spans, array)
    return Masks(masks, parse_lineage(attributes.get(KEY), str(path / METADATA), limits))


def chunk_shape(shape: Shape) -> Shape:
    """Chunks of at most a block that cover an array in C order."""
    chunks, room = [1] * len(shape), BLOCK_NUMEL
    for axis in reversed(range(len(shape))):
        chunks[axis] = max(1, min(shape[axis], room))
        if chunks[axis] < shape[axis]:
            break
        room //= chunks[axis]
    return tuple(chunks)


def _keys(names: Any) -> dict[str, str]:
    """The folder of each tensor's array; names that may not be one, and what is reserved, get a number."""
    plain = {name for name in names if is_plain_name(name) and len(name.encode()) <= _NAME_BYTES}
    plain -= {name for name in plain if name.startswith("__") or name == METADATA}
    numbers = (key for n in itertools.count() if (key := f"tensor-{n}") not in plain)
    return {name: name if name in plain else next(numbers) for name in names}


def _write_array(folder: Path, name: str, shape: Shape, spans: Iterator[npt.NDArray[np.bool_]]) -> int:
    chunks = chunk_shape(shape)
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "bool",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False,
        "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": _ZSTD_LEVEL, "checksum": True}}],
        "attributes": {_TENSOR: name},
    }
    folder.mkdir()
    size = _write(folder / METADATA, canonical(document))
    cut = _Cutter(spans)
    for index in _grid(shape, chunks):
        # Only one dimension has chunks that go beyond the array; those before it are single steps.
        real = [min(side, length - at * side) for at, side, length in zip(index, chunks, shape, strict=True)]
        data = np.zeros(math.prod(chunks), np.bool_)
        data[: math.prod(real)] = cut.take(math.prod(real))
        size += _write(_chunk_path(folder, index, "/"), pack_frame(data.view(np.uint8), _ZSTD_LEVEL, checksum=True))
    return size


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
    return len(data)


class _Cutter:
    """Takes any number of elements at a time from spans of other lengths."""

    def __init__(self, spans: Iterator[npt.NDArray[np.bool_]]) -> None:
        self._spans = spans
        self._rest = np.empty(0, np.bool_)

    def take(self, count: int) -> npt.NDArray[np.bool_]:
        parts, missing = [], count
        while missing:
            if not self._rest.size:
                self._rest = next(self._spans)
            parts.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= parts[-1].size
        return np.concatenate(parts) if parts else np.empty(0, np.bool_)


class _Array(NamedTuple):
    """An array of a group.

    Attributes:
        folder: where it lies.
        name: of its tensor.
        shape, chunks: as its metadata says.
        separator: of the indices in a chunk's key.
        compressed: chunks are zstd frames.
        fill: of chunks that are not there.
    """

    folder: Path
    name: str
    shape: Shape
    chunks: Shape
    separator: str
    compressed: bool
    fill: int


def _opened(folder: Path, source: Checkpoint, limits: Limits) -> tuple[str, _Array]:
    document = _document(folder / METADATA, limits.zarr_json_bytes, limits)
    attributes = document.get("attributes", {})
    name = attributes.get(_TENSOR, folder.name) if isinstance(attributes, dict) else folder.name
    if not isinstance(name, str):
        raise FormatError(f"{folder / METADATA}: the attribute {_TENSOR} is {shown(name)}")
    check_name(name, str(folder / METADATA), limits)
    info = tensor_of(source, name)
    array = _Array(folder, name, *_layout(name, document))
    require_maskable(info, array.shape)
    _check_size(array)
    return name, array


def _layout(name: str, document: dict[str, Any]) -> tuple[Shape, Shape, str, bool, int]:
    shape = _numbers(document.get("shape"), 0)
    chunks = _numbers(_of(document.get("chunk_grid"), "regular").get("chunk_shape"), 1)
    encoding = _of(document.get("chunk_key_encoding"), "default")
    separator = encoding.get("separator", "/")
    codecs = [entry.get("name") for entry in document.get("codecs", []) if isinstance(entry, dict)]
    fill = document.get("fill_value")
    known = (
        document.get("node_type") == "array",
        document.get("data_type") in _DTYPES,
        shape is not None and chunks is not None and len(shape) == len(chunks),
        separator in ("/", "."),
        not document.get("storage_transformers"),
        fill in (0, 1),
    )
    if codecs not in (["bytes"], ["bytes", "zstd"]):
        raise FormatError(f"tensor {name}: codecs {shown(codecs)}; its mask must be bytes, or bytes and zstd")
    if not all(known) or shape is None or chunks is None or fill is None:
        raise FormatError(
            f"tensor {name}: not a boolean array of Zarr v3 with a regular grid", hint="write it with zarr 3, as bool"
        )
    return shape, chunks, separator, len(codecs) == 2, int(fill)


def _check_size(array: _Array) -> None:
    row = array.chunks[:1] + array.shape[1:]
    if max(math.prod(row), math.prod(array.chunks)) > _ROW_NUMEL:
        raise LimitError(f"tensor {array.name}: chunks {list(array.chunks)} hold more than {_ROW_NUMEL:,} elements")
    chunks = math.prod(-(-length // side) for length, side in zip(array.shape, array.chunks, strict=True))
    if chunks > _CHUNKS:
        raise LimitError(f"tensor {array.name}: {chunks:,} chunks; the limit is {_CHUNKS:,}")


def _spans(array: _Array) -> Iterator[npt.NDArray[np.bool_]]:
    """The array's elements in C order, a row of chunks along the first dimension at a time."""
    if not array.shape:
        yield as_bool(array.name, _chunk(array, ()), 1)
        return
    for start in range(0, array.shape[0], array.chunks[0]):
        stop = min(start + array.chunks[0], array.shape[0])
        row = np.empty((stop - start, *array.shape[1:]), np.uint8)
        for index in _grid(array.shape[1:], array.chunks[1:]):
            chunk = _chunk(array, (start // array.chunks[0], *index)).reshape(array.chunks)
            part = row[(slice(None), *_slices(index, array.chunks[1:]))]
            part[...] = chunk[tuple(map(slice, part.shape))]
        yield as_bool(array.name, row.reshape(-1), 1)


def _slices(index: Sequence[int], chunks: Sequence[int]) -> Iterator[slice]:
    return (slice(at * side, (at + 1) * side) for at, side in zip(index, chunks, strict=True))


def _chunk(array: _Array, index: Sequence[int]) -> npt.NDArray[np.uint8]:
    path, size = _chunk_path(array.folder, index, array.separator), math.prod(array.chunks)
    try:
        with prefixed(f"tensor {array.name}: ", DataError):
            stored = read_whole(path, 2 * size + 1024)
    except NotFoundError:
        # Zarr leaves out chunks that hold nothing else; that none was lost, the lineage's check tells.
        return np.full(size, array.fill, np.uint8)
    if not array.compressed:
        if len(stored) != size:
            raise CorruptError(f"tensor {array.name}", f"chunk {path.name} has {len(stored):,} bytes, not {size:,}")
        return np.frombuffer(stored, np.uint8)
    if content_bytes(stored) != size:
        raise FormatError(f"tensor {array.name}: chunk {path.name} is not a zstd frame of {size:,} bytes")
    data = np.empty(size, np.uint8)
    try:
        unpack_frame(stored, data)
    except ValueError as error:
        raise CorruptError(f"tensor {array.name}", f"chunk {path.name} does not decode ({error})") from error
    return data


def _chunk_path(folder: Path, index: Sequence[int], separator: str) -> Path:
    return folder / separator.join(["c", *map(str, index)])


def _grid(shape: Sequence[int], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(-(-length // side)) for length, side in zip(shape, chunks, strict=True)))


def _document(path: Path, max_bytes: int, limits: Limits) -> dict[str, Any]:
    data = read_whole(path, max_bytes)
    document = parse_object(data, str(path), max_bytes=max_bytes, max_values=limits.json_values + 4 * limits.tensors)
    if document.get("zarr_format") != 3:
        raise FormatError(f"{path}: not the metadata of Zarr v3")
    return document


def _of(entry: Any, name: str) -> dict[str, Any]:
    configuration = entry.get("configuration", {}) if isinstance(entry, dict) and entry.get("name") == name else {}
    return configuration if isinstance(configuration, dict) else {}


def _numbers(value: Any, least: int) -> Shape | None:
    if not isinstance(value, list) or not all(type(item) is int and item >= least for item in value):
        return None
    return tuple(value)


FORMAT = Format(
    name="zarr-bool",
    holds="mask",
    accepts="a Zarr v3 group with a boolean array for each tensor",
    write=write,
    read=read,
)
"""The line of the table of formats."""
