"""The tensor table of an artifact: one row per tensor, read row by row and written in canonical form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import msgspec

from maskreg.document import canonical, decoded
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS
from maskreg.tensors.info import MAX_RANK, shown
from maskreg.words import counted

TENSORS_SCHEMA: Literal["maskreg.tensors/1"] = "maskreg.tensors/1"

_KEY = "tensors.json"

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Shape = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_RANK)]


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
    source_shape: Shape | None = None
    source_dtype: str = ""
    target_shape: Shape | None = None
    target_dtype: str = ""
    numel: Count = 0
    nnz: Count = 0
    differing: Count = 0
    energy: float = 0.0
    nonfinite: Count = 0
    nan: Count = 0
    inf: Count = 0
    bit_offset: Count = 0
    first_block: Count = 0
    blocks: Count = 0
    first_leaf: Count = 0
    leaves: Count = 0
    whole_offset: Count = 0
    whole_bytes: Count = 0
    reverse_whole_offset: Count = 0
    reverse_whole_bytes: Count = 0
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


@dataclass(frozen=True)
class _Table:
    schema: Literal["maskreg.tensors/1"]
    tensors: tuple[Tensor, ...]


def load_tensors(data: bytes) -> tuple[Tensor, ...]:
    """Parse ``tensors.json`` (its digest was checked before); rows are counted before one of them is parsed.

    Unknown keys are ignored: a later minor version can add some, and the digest covers them.
    """
    if data.count(b"{") > LIMITS.tensors + 1:
        raise LimitError(f"{_KEY}: more than {LIMITS.tensors} rows")
    tensors = decoded(_Table, data, _KEY).tensors
    names: set[str] = set()
    for row in tensors:
        for name in (row.name, *row.aliases):
            if name in names:
                raise FormatError(f"{_KEY}: the tensor name {shown(name)} appears twice")
            names.add(name)
    return tensors


_DEFAULTS = {field.name: field.default for field in fields(Tensor)}
