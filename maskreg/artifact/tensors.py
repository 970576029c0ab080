"""The tensor table of an artifact: one row per tensor, read row by row and written in canonical form."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from maskreg.document import canonical, parse_rows
from maskreg.errors import FormatError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.info import MAX_RANK, shown
from maskreg.words import counted

TENSORS_SCHEMA = "maskreg.tensors/1"

_KEY = "tensors.json"
_COUNTS_BELOW = 1 << 63


# Not a struct of msgspec: fields of its 200,000 rows are checked against each other, with messages that name the row.
@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of ``tensors.json``.

    Attributes:
        name: the tensor's name in the checkpoints.
        role: ffn, attention, embedding, lm_head, norm, router or other.
        layer: ``3``, ``visual.3``, or empty.
        source_shape, source_dtype: absent when the tensor is new in the target.
        target_shape, target_dtype: absent when the target lacks it; dtype of the stored values.
        numel: coordinates with a mask; 0 for a tensor that is stored whole or cannot move.
        energy: sum of squared differences of finite pairs, six digits.
        nonfinite: pairs of which a side is NaN or infinite in bf16; the energy leaves them out.
        nan, inf: of the target's coordinates, those that are NaN, or infinite, in bf16.
        bit_offset: first bit in the ``mask`` array (a multiple of 64).
        first_block, blocks: its span in ``delta_index`` and ``reverse_index``.
        first_leaf, leaves: its span in ``leaves``; the longer of the two sides.
        whole_offset, whole_bytes: its raw target bytes in ``whole``.
        reverse_whole_offset, reverse_whole_bytes: its raw source bytes in ``reverse_whole``.
        source_fingerprint, target_fingerprint: empty where that side is absent.
        aliases: other names with the same content on both sides (tied weights).
    """

    name: str
    role: str
    layer: str = ""
    source_shape: tuple[int, ...] | None = None
    source_dtype: str = ""
    target_shape: tuple[int, ...] | None = None
    target_dtype: str = ""
    numel: int = 0
    nnz: int = 0
    differing: int = 0
    energy: float = 0.0
    nonfinite: int = 0
    nan: int = 0
    inf: int = 0
    bit_offset: int = 0
    first_block: int = 0
    blocks: int = 0
    first_leaf: int = 0
    leaves: int = 0
    whole_offset: int = 0
    whole_bytes: int = 0
    reverse_whole_offset: int = 0
    reverse_whole_bytes: int = 0
    source_fingerprint: str = ""
    target_fingerprint: str = ""
    aliases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = self.source_shape if self.target_shape is None else self.target_shape
        return f"<Tensor {self.name} {shape}: {self.nnz:,} of {counted(self.numel, 'coordinate')} moved>"


def dump_tensors(tensors: Iterable[Tensor]) -> bytes:
    """Canonical bytes of ``tensors.json``; fields with their default value are left out."""
    rows = [
        {name: value for name, default in _DEFAULTS.items() if (value := getattr(row, name)) != default}
        for row in tensors
    ]
    return canonical({"schema": TENSORS_SCHEMA, "tensors": rows})


def load_tensors(data: bytes, limits: Limits = LIMITS) -> tuple[Tensor, ...]:
    """Parse ``tensors.json`` (its digest was checked before).

    Rows are counted before one of them is parsed, and parsed one at a time, so memory stays within a few times the
    document's size, whatever it holds.
    """
    document, rows = parse_rows(
        data,
        _KEY,
        key="tensors",
        max_bytes=limits.tensors_json_bytes,
        max_rows=limits.tensors,
        max_row_bytes=limits.tensor_row_bytes,
    )
    if document.get("schema") != TENSORS_SCHEMA:
        raise FormatError(f"{_KEY}: schema {shown(document.get('schema'))} is not {TENSORS_SCHEMA}")
    tensors = tuple(_tensor(row) for row in rows)
    names: set[str] = set()
    for row in tensors:
        for name in (row.name, *row.aliases):
            if name in names:
                raise FormatError(f"{_KEY}: the tensor name {shown(name)} appears twice")
            names.add(name)
    return tensors


def _tensor(fields: Mapping[str, Any]) -> Tensor:
    values: dict[str, Any] = {}
    for key, value in fields.items():
        # Unknown keys are ignored: a later minor version may add some, and the digest covers them.
        if read := _READERS.get(key):
            try:
                values[key] = read(value)
            except ValueError as error:
                raise FormatError(
                    f"{_KEY}: {shown(fields.get('name'))}: {key} is {shown(value)}, not {error}"
                ) from None
    if "name" not in values or "role" not in values:
        raise FormatError(f"{_KEY}: {shown(fields.get('name'))}: a row without name or role")
    return Tensor(**values)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a text")
    return value


def _word(value: Any) -> str:
    # Thousands of rows have the same few of these.
    return sys.intern(_text(value))


def _count(value: Any) -> int:
    # type(), not isinstance(): JSON's true would pass for 1.
    if type(value) is not int or not 0 <= value < _COUNTS_BELOW:
        raise ValueError("a count")
    return value


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    # A whole number may be written without a fraction; a huge one would overflow a float.
    return float(_count(value))


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if type(value) is not list or len(value) > MAX_RANK:
        raise ValueError(f"a shape of at most {MAX_RANK} dimensions")
    return tuple(map(_count, value))


def _names(value: Any) -> tuple[str, ...]:
    if type(value) is not list:
        raise ValueError("a list of names")
    return tuple(map(_text, value))


_READER_OF_TYPE: Mapping[str, Callable[[Any], Any]] = {
    "str": _word,
    "int": _count,
    "float": _number,
    "tuple[int, ...] | None": _shape,
    "tuple[str, ...]": _names,
}
# Annotations are texts here, because of the import from __future__.
_READERS = {field.name: _READER_OF_TYPE[str(field.type)] for field in dataclasses.fields(Tensor)} | {"name": _text}
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Tensor)}
