"""Blocks: the spans of a tensor that are read, coded and checked as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from maskreg.tensors.info import TensorInfo

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


def rechunked(chunks: Iterable[bytes], tensor: TensorInfo) -> Iterator[npt.NDArray[Any]]:
    """A tensor's raw bytes as blocks of 2^22 elements, the last one shorter.

    Args:
        chunks: its bytes, in pieces.
        tensor: says how wide an element is.

    Yields:
        Unsigned integers of the element's width, read-only.
    """
    dtype = np.dtype(f"<u{tensor.item_bytes}")
    room = BLOCK_NUMEL * tensor.item_bytes
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= room:
            yield np.frombuffer(bytes(held[:room]), dtype)
            del held[:room]
    if held:
        yield np.frombuffer(bytes(held), dtype)
