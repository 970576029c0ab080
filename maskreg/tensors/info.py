"""Dtypes by their safetensors codes: widths, and which of them can have masks and deltas.

Blocks: the spans of a tensor that are read, coded and checked as one.

Which names tensors can have.

One tensor of a checkpoint, without its data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one element, by safetensors dtype code."""

HALF = frozenset({"BF16", "F16"})
"""16-bit floating point: deltas are between tensors of one of these."""

WIDE = frozenset({"F32", "F64"})
"""Wider floating point: cast to bf16 before it is compared."""

FLOAT = HALF | WIDE
"""Every dtype that can have a mask."""


BLOCK_NUMEL = 1 << 22
"""Maximum number of coordinates of a block: 16 leaves. Blocks decode independently."""


def blocks_of(numel: int) -> Iterator[tuple[int, int]]:
    """Spans ``[start, stop)`` of at most one block each that cover a tensor in order."""
    for start in range(0, numel, BLOCK_NUMEL):
        yield start, min(start + BLOCK_NUMEL, numel)


class Span(Protocol):
    """Some elements of a tensor."""

    @property
    def start(self) -> int:
        """The first."""

    @property
    def stop(self) -> int:
        """One past the last."""


def numel_of(span: Span) -> int:
    """How many elements a span has."""
    return span.stop - span.start


ItemT = TypeVar("ItemT")


def batches(items: Iterable[ItemT], most: int, size: Callable[[ItemT], int]) -> Iterator[list[ItemT]]:
    """Items in their order, in batches whose sizes add up to at most ``most``; a larger item is a batch of its own."""
    batch: list[ItemT] = []
    total = 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_name(name: str, document: str) -> None:
    """Refuse a tensor name that could break a message, a table or a document.

    Any other name is fine, ``../../etc/x`` too: names are data, and never become paths.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise FormatError(f"{document}: a tensor name that is not Unicode: {shown(name)}") from error
    if size > LIMITS.name_bytes:
        raise LimitError(f"{document}: a tensor name of {size} bytes; the limit is {LIMITS.name_bytes}")
    if not name or _CONTROL.search(name):
        raise FormatError(f"{document}: a tensor name that is empty or has control characters: {shown(name)}")


def shown(value: object) -> str:
    """Any value from outside in printable ASCII, cut to a length that fits a message."""
    return ascii(value)[:80]


MAX_RANK = 64
"""Maximum number of dimensions of a tensor, as of numpy arrays."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint, without its data.

    Attributes:
        dtype: safetensors code, such as ``BF16``.
        shape: empty for a 0-D tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a 0-D tensor."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Size of one element in bytes."""
        return ITEM_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.numel * self.item_bytes
