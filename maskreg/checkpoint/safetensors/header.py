"""The safetensors header: eight length bytes, a JSON object, then the tensors' data without gaps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from maskreg.checkpoint.base import Shard
from maskreg.document import parse_object
from maskreg.errors import CorruptError, FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.dtypes import ITEM_BYTES
from maskreg.tensors.info import TensorInfo

LENGTH_BYTES = 8
"""The little-endian length in front of the JSON."""

MAX_RANK = 64
"""Most dimensions of one tensor: what an array can have."""

# An object of objects that hold lists; anything deeper is not a header.
_DEPTH = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_KEYS = {"dtype", "shape", "data_offsets"}


def header_length(first: bytes, file_bytes: int, what: str, limits: Limits = LIMITS) -> int:
    """Length of the JSON, from the first eight bytes of a file.

    Args:
        first: the first eight bytes, or all of a shorter file.
        file_bytes: size of the file.
        what: how a message names the file.
        limits: the header's largest size.

    Raises:
        FormatError: the file cannot hold such a header.
        LimitError: the header is longer than the limit.
    """
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or length > file_bytes - LENGTH_BYTES:
        raise FormatError(
            f"{what}: not a safetensors file, or one that is cut short",
            hint="download or copy the checkpoint again; maskreg reads safetensors weights only",
        )
    if length > limits.safetensors_header_bytes:
        raise LimitError(f"{what}: a header of {length} bytes; the limit is {limits.safetensors_header_bytes}")
    return length


def parse_header(header: bytes, data_bytes: int, file_name: str, limits: Limits = LIMITS) -> Shard:
    """Read a header, trusting nothing in it.

    Args:
        header: length bytes and JSON, as stored.
        data_bytes: how much of the file follows the header.
        file_name: the shard's name.
        limits: bounds on the number of tensors, their names and their sizes.

    Returns:
        The shard, its tensors in the order of their data; each begins where the one before ends.

    Raises:
        FormatError: anything that the format forbids.
        LimitError: too many tensors, or one that is too large.
        CorruptError: the file is shorter or longer than the header says.
    """
    if header[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{":
        raise FormatError(f"{file_name}: not a safetensors file")
    document = parse_object(
        header[LENGTH_BYTES:], file_name, max_bytes=limits.safetensors_header_bytes, max_depth=_DEPTH
    )
    metadata = _metadata(document.pop("__metadata__", {}), file_name)
    if len(document) > limits.tensors:
        raise LimitError(f"{file_name}: {len(document)} tensors; the limit is {limits.tensors}")
    placed = sorted(
        (_tensor(name, entry, file_name, limits) for name, entry in document.items()),
        key=lambda item: item[:2],
    )
    _check_gapless(placed, data_bytes, file_name)
    return Shard(file_name, tuple(info for _, _, info in placed), header, metadata)


def build_header(tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """The header of a file that holds ``tensors`` in this order, padded so that the data is 8-byte aligned."""
    document: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for info in tensors:
        offsets = [place, place + info.nbytes]
        document[info.name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
        place += info.nbytes
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def check_name(name: str, what: str, limits: Limits = LIMITS) -> None:
    """Refuse a tensor name that could break a message, a table or a document.

    Any other name is fine, ``../../etc/x`` too: names are data, and never become paths.

    Raises:
        FormatError: empty, with control characters, or not Unicode.
        LimitError: too long.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise FormatError(f"{what}: a tensor name that is not Unicode: {_shown(name)}") from error
    if size > limits.name_bytes:
        raise LimitError(f"{what}: a tensor name of {size} bytes; the limit is {limits.name_bytes}")
    if not name or _CONTROL.search(name):
        raise FormatError(f"{what}: a tensor name that is empty or has control characters: {_shown(name)}")


def _metadata(value: Any, what: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(f"{what}: __metadata__ must be an object of strings")
    try:
        "".join([*value, *value.values()]).encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{what}: __metadata__ is not Unicode") from error
    return value


def _tensor(name: str, entry: Any, what: str, limits: Limits) -> tuple[int, int, TensorInfo]:
    check_name(name, what, limits)
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise FormatError(f"{what}: tensor {name} must have dtype, shape and data_offsets, and nothing else")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise FormatError(f"{what}: tensor {name} has the unknown dtype {_shown(dtype)}")
    shape, offsets = _naturals(entry["shape"]), _naturals(entry["data_offsets"])
    if shape is None or offsets is None or len(offsets) != 2:
        raise FormatError(f"{what}: tensor {name} has a malformed shape or malformed offsets")
    # Checked before anything is multiplied: a hostile shape could otherwise cost time and memory.
    if len(shape) > MAX_RANK or any(size > limits.numel for size in shape):
        raise LimitError(f"{what}: tensor {name} has too many or too large dimensions")
    info = TensorInfo(name, dtype, shape)
    if info.numel > limits.numel:
        raise LimitError(f"{what}: tensor {name} has {info.numel} elements; the limit is {limits.numel}")
    begin, end = offsets
    if end - begin != info.nbytes:
        raise FormatError(
            f"{what}: tensor {name} takes {end - begin} bytes where {dtype} {list(shape)} needs {info.nbytes}"
        )
    return begin, end, info


def _naturals(value: Any) -> tuple[int, ...] | None:
    # type(), not isinstance(): JSON's true would pass for 1.
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        return None
    return tuple(value)


def _check_gapless(placed: list[tuple[int, int, TensorInfo]], data_bytes: int, what: str) -> None:
    place = 0
    for begin, end, info in placed:
        if begin != place:
            fault = "overlaps the tensor before it" if begin < place else "leaves a gap before it"
            raise FormatError(f"{what}: tensor {info.name} {fault}")
        place = end
    if place != data_bytes:
        raise CorruptError(
            what,
            f"{data_bytes} bytes of data where the header says {place}",
            hint="download or copy the checkpoint again",
        )


def _shown(value: object) -> str:
    return ascii(value)[:80]
