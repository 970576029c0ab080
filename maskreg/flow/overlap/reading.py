"""Bits of masks and codes of their source, span by span; what several tiles need is read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import Packed
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope
from maskreg.artifact.tensors import Tensor
from maskreg.flow.overlap.tiles import Tile
from maskreg.update.verified import VerifiedSource

HELD_BYTES = 1 << 30
"""Memory for the bits and codes of a tensor that is counted in several tiles. Those of a larger one are read for each
tile."""


class SharedSpan(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor that several masks cover, by its row in each artifact.

    Attributes:
        rows: of the tensor in each artifact.
        start: first coordinate.
        stop: one past the last.
        tile: the pairs that are counted.
    """

    rows: tuple[Tensor, ...]
    start: int
    stop: int
    tile: Tile

    @property
    def ends_tile(self) -> bool:
        """Whether it is the last span of its tensor, for these pairs."""
        return self.stop == self.rows[0].numel

    @property
    def ends_tensor(self) -> bool:
        """Whether it is the last span of its tensor, for all pairs."""
        return self.ends_tile and self.tile.number == self.tile.tiles - 1

    @property
    def masks(self) -> Sequence[int]:
        """Numbers of the masks that are read. The first tile also counts what belongs to no pair, so it needs all."""
        return self.tile.masks if self.tile.number else range(len(self.rows))


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class SpanReader:
    """Reads spans. Safe to call from many threads.

    Where the bits and codes of a tensor fit into memory, the first tile that needs a span of a mask reads it, and the
    others wait for it::

        tile 1   reads bits 0-4M of A, B, C       tile 2   reads those of D, E and has A's
    """

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        source: VerifiedSource | None,
        scope: Scope,
        room: int = HELD_BYTES,
    ) -> None:
        """Read nothing yet.

        Args:
            artifacts: the masks.
            source: the checkpoint that they were made from; None for masks alone.
            scope: the tensors, and where parts of them lie.
            room: bytes of memory for what is held.
        """
        self._artifacts, self._source, self._scope, self._room = artifacts, source, scope, room
        self._held: dict[tuple[str, int, int], _Entry] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Elsewhere nobody knows when a tensor is done with, so nothing is held.
        return SpanReader, (self._artifacts, self._source, self._scope, 0)

    def bits(self, span: SharedSpan) -> dict[int, Packed]:
        """Packed bits of the masks that the span's tile needs, by their numbers.

        Raises:
            DataError: an artifact is damaged.
        """
        return {number: self._once(span, number, partial(self._read_bits, span, number)) for number in span.masks}

    def codes(self, span: SharedSpan) -> npt.NDArray[np.uint16] | None:
        """The source's bf16 codes, each leaf checked; None without the source.

        Raises:
            WrongCheckpointError: the source's elements are not those that the masks were made from.
        """
        if self._source is None:
            return None
        tensor, first = self._scope.origin(span.rows[0].name)
        read = partial(self._source.codes_within, tensor, first + span.start, first + span.stop)
        codes: npt.NDArray[np.uint16] = self._once(span, -1, read)
        return codes

    def forget(self, tensor: str) -> None:
        """Drop what is held of a tensor: no tile needs it any more."""
        with self._lock:
            self._held = {key: entry for key, entry in self._held.items() if key[0] != tensor}

    def _read_bits(self, span: SharedSpan, number: int) -> Packed:
        return self._artifacts[number].mask_bits(span.rows[number], span.start, span.stop)

    def _once(self, span: SharedSpan, mask: int, read: Callable[[], Any]) -> Any:
        if not self._holds(span):
            return read()
        with self._lock:
            entry = self._held.setdefault((span.rows[0].name, span.start, mask), _Entry())
        with entry.lock:
            if entry.value is None:
                entry.value = read()
            return entry.value

    def _holds(self, span: SharedSpan) -> bool:
        if span.tile.tiles == 1:
            return False
        codes = 0 if self._source is None else 2 * span.rows[0].numel
        return span.rows[0].numel // 8 * len(span.rows) + codes <= self._room
