"""Blocks: the spans of a tensor that are read, coded and checked as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

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
