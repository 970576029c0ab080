"""Payloads of NeMo RL's remote sparse-delta refit: gaps between changed elements, and their XOR or their new values.

A payload ``000000.pt`` is one zstd frame of what ``torch.save`` writes of a tuple of locations, values and items::

    (uint8 [bytes],                                       gaps of all tensors one after another
     (int16 [n], int32 [m]),                              values in groups of one width, as bits
     [{"name": "model.norm.weight", "shape": (256,), "dtype": "bfloat16", "operation": "xor",
       "index_encoding": "deltas", "index_start": 0, "index_end": 24,                bytes of the locations
       "value_group": 0, "value_start": 0, "value_end": 12}, ...])                   elements of a group

A gap is how many elements lie between a changed element and the one before it, little-endian of the narrowest width of
16, 32 and 64 bits that holds all gaps of the tensor: ``index_end - index_start`` bytes for as many elements as there
are values. One element, or several without gaps, have no locations: ``"index_encoding": "range", "range_start": 7``.
``xor``: the target's bits XOR the source's. ``overwrite``: the target's bits.

A payload is about 512 MiB of tensors, or one larger tensor, and is in memory as a whole while it is written, and read.

What NeMo RL sends beside an object of payload, its key and its checksum (BLAKE2b of 128 bits, of the compressed bytes),
is in ``manifest.json``, a file of maskreg's own::

    {"payloads": [{"key": "000000.pt", "checksum": "32 hex digits", "verification_candidates": 0}], "maskreg": "..."}

After NeMo RL 0.6.0 of 2026-08-22 (https://github.com/NVIDIA-NeMo/RL): ``docs/design-docs/sparse-delta-refit.md``,
``nemo_rl/utils/weight_transfer_sparse_codec.py`` and ``nemo_rl/utils/weight_transfer_stream.py``.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from maskreg.artifact.shards import pack_frame
from maskreg.checkpoint.archive import DTYPES, Archive, info_of, piece_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import is_plain_name, read_whole
from maskreg.checkpoint.pieces import Box
from maskreg.document import checked
from maskreg.errors import CorruptError, FormatError, UsageError
from maskreg.exchange.base import KEY, Format, Values, Written
from maskreg.exchange.frames import ZSTD_LEVEL, Bytes, unpack
from maskreg.exchange.incoming import MANIFEST_NAME, Patch, parse_manifest, patched, same_form
from maskreg.exchange.outgoing import Changes, Outgoing, changes_in
from maskreg.exchange.output import folder_written, sync_file
from maskreg.extras import requiring
from maskreg.limits import LIMITS
from maskreg.tensors.info import TensorInfo, shown

PAYLOAD_BYTES = 512 << 20
"""Bytes of the tensors that one payload is about; only a single larger tensor exceeds it."""
_GAPS: Mapping[int, type[np.unsignedinteger[Any]]] = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_NAMES = {code: name for name, code in DTYPES.items()}
_Natural = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_SIGNED = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}
# How torch views elements of a width as bits.


class _Pointer(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    checksum: str


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    payloads: tuple[_Pointer, ...]
    maskreg: str | None = None


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    shape: tuple[int, ...]
    dtype: str
    operation: Literal["xor", "overwrite"]
    index_encoding: Literal["range", "deltas"]
    index_start: _Natural
    index_end: _Natural
    value_group: _Natural
    value_start: _Natural
    value_end: _Natural
    range_start: _Natural = 0


def write(update: Outgoing, out: Path, *, force: bool, encoding: str = "xor") -> Written:
    """Write a folder of payloads; see :class:`maskreg.exchange.base.Format`."""
    if encoding not in ("xor", "overwrite"):
        raise UsageError(f"unknown encoding {encoding!r}", hint="choose xor or overwrite")
    return folder_written(
        update,
        out,
        MANIFEST_NAME,
        "{n:06d}.pt",
        PAYLOAD_BYTES,
        write_file=partial(_write_payload, update=update, encoding=encoding),
        describe=lambda parts: {"payloads": list(parts.values()), KEY: update.lineage()},
        weights="*.pt",
        force=force,
    )


def _write_payload(path: Path, infos: Sequence[TensorInfo], update: Outgoing, encoding: str) -> Mapping[str, Any]:
    """Write one payload, and return what the manifest says of it."""
    with requiring("writing payloads of NeMo RL"):
        import torch
    locations: list[Bytes] = []
    groups: dict[int, list[npt.NDArray[Any]]] = {}
    items: list[dict[str, Any]] = []
    at, ends = 0, dict[int, int]()
    results = update.map(changes_in, [info.name for info in infos])
    for name, spans in groupby(results, key=lambda result: result[0].name):
        info = update.changed[name]
        gaps, values = _joined([changes for _, changes in spans], encoding)
        if not values.size:
            continue
        width, start = info.item_bytes, ends.get(info.item_bytes, 0)
        groups.setdefault(width, []).append(values)
        ends[width] = start + values.size
        item = {"name": name, "shape": info.shape, "dtype": _NAMES[info.dtype], "operation": encoding}
        item |= {"value_group": list(groups).index(width), "value_start": start, "value_end": ends[width]}
        if gaps[1:].any():
            locations.append(gaps.view(np.uint8))
            item |= {"index_encoding": "deltas", "index_start": at, "index_end": at + gaps.nbytes}
            at += gaps.nbytes
        else:
            item |= {"index_encoding": "range", "index_start": at, "index_end": at, "range_start": int(gaps[0])}
        items.append(item)
    packed = torch.from_numpy(np.concatenate(locations) if locations else np.empty(0, np.uint8))
    values_of = tuple(torch.from_numpy(np.concatenate(parts).view(_SIGNED[width])) for width, parts in groups.items())
    buffer = io.BytesIO()
    torch.save((packed, values_of, items), buffer)
    frame = pack_frame(np.frombuffer(buffer.getbuffer(), np.uint8), ZSTD_LEVEL)
    with path.open("xb") as file:
        file.write(frame)
        sync_file(file)
    return {"key": path.name, "checksum": _checksum(frame), "verification_candidates": 0}


def _joined(parts: Sequence[Changes], encoding: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Gaps of the narrowest width, and values, of the spans of a tensor."""
    gaps, last = [np.empty(0, np.uint16)], -1
    for indices in (part.indices for part in parts if part.indices.size):
        between = np.diff(indices, prepend=last) - 1
        gaps.append(between.astype(next(kind for width, kind in _GAPS.items() if between.max() < 1 << 8 * width)))
        last = int(indices[-1])
    values = [part.before ^ part.after if encoding == "xor" else part.after for part in parts]
    return np.concatenate(gaps), np.concatenate(values)


def _checksum(frame: bytes) -> str:
    return hashlib.blake2b(frame, digest_size=16).hexdigest()


def read(path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Values:
    """Open a folder of payloads; see :class:`maskreg.exchange.base.Reader`."""
    manifest, document = parse_manifest(path, _Manifest, FORMAT.accepts), str(path / MANIFEST_NAME)
    payloads = _Payloads(path, source)
    patches: dict[str, Patch] = {}
    for pointer in manifest.payloads:
        if not is_plain_name(pointer.key):
            raise FormatError(f"{document}: not the plain name of a file: {shown(pointer.key)}")
        for item in payloads.payload(pointer).items:
            if item.name in patches:
                raise FormatError(f"tensor {item.name}: it is in the payloads twice")
            info = same_form(source, item.name, item.dtype, item.shape)
            patches[item.name] = payloads.patch(pointer, item, info)
    return patched(source, patches, path, manifest.maskreg, document=path / MANIFEST_NAME)


class _Payload(NamedTuple):
    locations: Bytes
    groups: tuple[npt.NDArray[Any], ...]
    items: tuple[_Item, ...]


class _Payloads:
    """Payloads of a folder; the last one and the changes of the last two tensors stay in memory."""

    def __init__(self, folder: Path, source: Checkpoint) -> None:
        self._folder = folder
        # Gaps of 32 bits of 16-bit values take twice as much as these.
        largest = max((info.nbytes for info in source.tensors.values()), default=0)
        self._most = 3 * max(PAYLOAD_BYTES, largest) + LIMITS.pickle_bytes
        # One at a time: others wait for the very tensor, or for memory.
        self._lock = threading.Lock()
        self.payload, self._recent = lru_cache(1)(self._read), lru_cache(2)(self._decode)

    def patch(self, pointer: _Pointer, item: _Item, info: TensorInfo) -> Patch:
        """What becomes of one tensor."""

        def apply(start: int, stop: int, values: npt.NDArray[Any]) -> None:
            with self._lock:
                indices, changes = self._recent(pointer, item, info)
            first, last = np.searchsorted(indices, (start, stop))
            local, new = indices[first:last] - start, changes[first:last].view(values.dtype)
            values[local] = values[local] ^ new if item.operation == "xor" else new

        return apply

    def _read(self, pointer: _Pointer) -> _Payload:
        frame = read_whole(self._folder / pointer.key, self._most)
        if _checksum(frame) != pointer.checksum:
            raise CorruptError(pointer.key, "does not match its checksum")
        file = _Memory(self._folder / pointer.key, unpack(frame, pointer.key, 0, self._most))
        archive = Archive(file, 0, file.size)
        match archive.saved:
            case (locations, tuple(groups), list(items)):
                arrays = [_array(archive, file, tensor) for tensor in (locations, *groups)]
                rows = tuple(checked(_Item, item, pointer.key) for item in items)
                return _Payload(arrays[0].view(np.uint8), tuple(arrays[1:]), rows)
        raise FormatError(f"{pointer.key}: not a tuple of locations, values and items")

    def _decode(
        self, pointer: _Pointer, item: _Item, info: TensorInfo
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        payload, count = self.payload(pointer), item.value_end - item.value_start
        values = payload.groups[item.value_group] if item.value_group < len(payload.groups) else np.empty(0)
        if count <= 0 or item.value_end > values.size or values.itemsize != info.item_bytes:
            raise FormatError(f"tensor {item.name}: its values are outside their group, or of another width")
        indices = np.arange(item.range_start, item.range_start + count, dtype=np.int64)
        if item.index_encoding == "deltas":
            size = item.index_end - item.index_start
            if size % count or size // count not in _GAPS or item.index_end > payload.locations.size:
                raise FormatError(f"tensor {item.name}: its {size:,} bytes of locations are not {count:,} gaps")
            gaps = payload.locations[item.index_start : item.index_end].view(_GAPS[size // count])
            indices = np.cumsum(gaps.astype(np.int64) + 1) - 1
        if indices[0] < 0 or indices[-1] >= info.numel or (np.diff(indices) <= 0).any():
            raise FormatError(f"tensor {item.name}: an index is not within its {info.numel:,} elements")
        return indices, values[item.value_start : item.value_end]


class _Memory:
    """Bytes in memory, as the file that they came from; see :class:`maskreg.checkpoint.files.OpenFile`."""

    def __init__(self, path: Path, data: Bytes) -> None:
        self.path, self.size, self.data = path, data.size, data

    def fill(self, into: memoryview, offset: int) -> bool:
        part = self.data[offset : offset + len(into)]
        into[: part.size] = part.data
        return part.size == len(into)

    def at_hand(self, offset: int, size: int) -> memoryview | None:
        return self.data[offset : offset + size].data

    def expect(self, offset: int, size: int) -> int:
        return 0

    def close(self) -> None:
        pass


def _array(archive: Archive, file: _Memory, tensor: Any) -> npt.NDArray[Any]:
    """A vector of an archive, as unsigned integers of its width."""
    import torch

    if type(tensor) is not torch.Tensor or tensor.ndim != 1 or (tensor.numel() > 1 and tensor.stride() != (1,)):
        raise FormatError(f"{archive.document}: locations or values that are no vector")
    info = info_of("", tensor, archive.document)
    offset = piece_of(archive, tensor, Box((0,), info.shape)).offset if info.numel else 0
    return np.frombuffer(file.data, f"<u{info.item_bytes}", info.numel, offset)


FORMAT = Format(
    name="nemo-rl",
    holds="values",
    accepts=f"a directory with {MANIFEST_NAME} and the payloads that it names",
    write=write,
    read=read,
    options={"encoding": "xor"},
)
