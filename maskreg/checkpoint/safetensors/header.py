"""The safetensors header: eight length bytes, a JSON object, then the tensors' data without gaps.

::

    80 00 00 00 00 00 00 00                                          length of the JSON, 128, little-endian
    {"__metadata__":{"format":"pt"},                                 optional; strings only
     "w":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]},...}   offsets count from the end of the header
    data of the tensors, each where the one before it ends

Every tensor must begin at a multiple of its element's width, because readers view it in place: the header is padded
with spaces to a multiple of eight bytes, and writers put wider elements first where the order given would not do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from maskreg.document import parse_object
from maskreg.errors import CorruptError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import ITEM_BYTES, MAX_RANK, TensorInfo, check_name, shown

LENGTH_BYTES = 8
"""The little-endian length in front of the JSON."""

# An object of objects that hold lists; anything deeper is not a header.
_DEPTH = 3
# A tensor takes about eight; the metadata, a text, counts with its commas.
_VALUES = 20
_KEYS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Shard:
    """One weight file of a checkpoint.

    Attributes:
        file_name: without directories.
        tensors: its tensors in the order of their data.
        header: exactly as stored, its 8 length bytes included.
        metadata: the header's ``__metadata__``.
    """

    file_name: str
    tensors: tuple[TensorInfo, ...]
    header: bytes
    metadata: Mapping[str, str]

    @property
    def data_bytes(self) -> int:
        """Size of the data behind the header in bytes."""
        return sum(info.nbytes for info in self.tensors)


def build_shard(file_name: str, tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> Shard:
    """A new weight file with these tensors, in this order where it keeps every tensor aligned.

    Sorting by width aligns any set of tensors: widths are powers of two, so whatever stands before an element of
    width w is a whole number of elements that are as wide or wider, and its length a multiple of w.
    """
    ordered = tuple(tensors)
    if not _aligned(ordered):
        ordered = tuple(sorted(ordered, key=lambda info: -info.item_bytes))
    return Shard(file_name, ordered, build_header(ordered, metadata), metadata)


def header_length(first: bytes, file_bytes: int, file_name: str, limits: Limits = LIMITS) -> int:
    """Length of the JSON, from the first eight bytes of a file."""
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or length > file_bytes - LENGTH_BYTES:
        raise FormatError(
            f"{file_name}: not a safetensors file, or cut short",
            hint="download or copy the checkpoint again; maskreg reads safetensors weights only",
        )
    if length > limits.safetensors_header_bytes:
        raise LimitError(f"{file_name}: a header of {length} bytes; the limit is {limits.safetensors_header_bytes}")
    return length


def parse_header(header: bytes, data_bytes: int, file_name: str, limits: Limits = LIMITS) -> Shard:
    """Parse and validate a header from outside."""
    if header[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{":
        raise FormatError(f"{file_name}: not a safetensors file", hint="maskreg reads safetensors weights only")
    # Before parsing, which takes seconds for so many: the document, its metadata and each tensor are an object.
    objects = header.count(b"{") - 1 - (b'"__metadata__"' in header)
    if objects > limits.tensors:
        raise LimitError(f"{file_name}: {objects} tensors; the limit is {limits.tensors}")
    document = parse_object(
        header[LENGTH_BYTES:],
        file_name,
        max_bytes=limits.safetensors_header_bytes,
        max_depth=_DEPTH,
        max_values=_VALUES * limits.tensors,
    )
    metadata = _metadata(document.pop("__metadata__", {}), file_name)
    ranges = sorted(
        (_tensor(name, entry, file_name, limits) for name, entry in document.items()),
        key=lambda item: item[:2],
    )
    _check_gapless(ranges, data_bytes, file_name)
    return Shard(file_name, tuple(info for _, _, info in ranges), header, metadata)


def build_header(tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """The header of a file that holds ``tensors`` in this order, padded so that the data is 8-byte aligned."""
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for info in tensors:
        offsets = [offset, offset + info.nbytes]
        document[info.name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
        offset += info.nbytes
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _metadata(value: Any, file_name: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(f"{file_name}: __metadata__ must be an object of strings")
    try:
        "".join([*value, *value.values()]).encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{file_name}: __metadata__ is not Unicode") from error
    return value


def _tensor(name: str, entry: Any, file_name: str, limits: Limits) -> tuple[int, int, TensorInfo]:
    check_name(name, file_name, limits)
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise FormatError(f"{file_name}: tensor {name} must have dtype, shape and data_offsets, and nothing else")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise FormatError(f"{file_name}: tensor {name} has the unknown dtype {shown(dtype)}")
    shape, offsets = _naturals(entry["shape"]), _naturals(entry["data_offsets"])
    if shape is None or offsets is None or len(offsets) != 2:
        raise FormatError(f"{file_name}: tensor {name} has a malformed shape or malformed offsets")
    # Checked before anything is multiplied: a hostile shape could otherwise cost time and memory.
    if len(shape) > MAX_RANK or any(size > limits.numel for size in shape):
        raise LimitError(f"{file_name}: tensor {name} has too many or too large dimensions")
    info = TensorInfo(name, dtype, shape)
    if info.numel > limits.numel:
        raise LimitError(f"{file_name}: tensor {name} has {info.numel} elements; the limit is {limits.numel}")
    begin, end = offsets
    if end - begin != info.nbytes:
        raise FormatError(
            f"{file_name}: tensor {name} takes {end - begin} bytes where {dtype} {list(shape)} needs {info.nbytes}"
        )
    return begin, end, info


def _naturals(value: Any) -> tuple[int, ...] | None:
    # type(), not isinstance(): JSON's true would pass for 1.
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        return None
    return tuple(value)


def _check_gapless(ranges: list[tuple[int, int, TensorInfo]], data_bytes: int, file_name: str) -> None:
    offset = 0
    for begin, end, info in ranges:
        if begin != offset:
            fault = "overlaps the tensor before it" if begin < offset else "leaves a gap before it"
            raise FormatError(f"{file_name}: tensor {info.name} {fault}")
        offset = end
    if offset != data_bytes:
        fault = "cut short" if data_bytes < offset else "too long"
        raise CorruptError(
            file_name,
            f"the file is {fault}: {data_bytes:,} bytes of data where its header says {offset:,}",
            hint="download or copy the checkpoint again",
        )


def _aligned(tensors: Iterable[TensorInfo]) -> bool:
    offset = 0
    for info in tensors:
        if offset % info.item_bytes:
            return False
        offset += info.nbytes
    return True
