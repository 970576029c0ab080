"""Pairs of many masks in tiles: what is counted at once, so that memory grows with no number of masks.

Every pair needs counters by row and column while its tensor is counted. A hundred masks have 4,950 pairs, whose
counters do not fit; so the pairs of a tensor are counted tile by tile, each of a few masks against a few others::

         1  2  3  4  5  6
      1  .  a  b  b  c  c
      2     .  b  b  c  c        tiles a to f of a tensor: b has pairs 1-3, 1-4, 2-3 and 2-4
      3        .  d  e  e
      4           .  e  e
      5              .  f
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, MAX_MASKS, Packed
from maskreg.analysis.evidence import NO_SOURCE
from maskreg.analysis.grid import MAX_COUNTS, MOST_POINTS, shape_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import Selection
from maskreg.errors import UsageError
from maskreg.mask.rounding import CLASSES
from maskreg.update.verified import VerifiedSource

ROOM_BYTES = 1 << 29
"""Memory for the counters of a tile."""

_CLASSES, _FREQUENT = 96, 16
"""Classes that the weights of a tensor have at most, or nearly: 48 exponents; and those that are counted by line."""

_COUNTER_BYTES = 4

_LISTED_BYTES = 10
"""Bytes of a coordinate of a class that few have."""

_LISTED = 4
"""One in so many coordinates is of such a class at most, or nearly."""


class Tile(NamedTuple):
    """Pairs of masks that are counted together.

    Attributes:
        number: of the tile within its tensor, from 0.
        tiles: of the tensor.
        pairs: numbers of both masks, the lower first.
    """

    number: int
    tiles: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def masks(self) -> tuple[int, ...]:
        """Numbers of the masks that it needs, in order."""
        return tuple(sorted({mask for pair in self.pairs for mask in pair}))


def tiles_of(masks: int, most: int) -> tuple[Tile, ...]:
    """All pairs of some masks, each in one tile."""
    pairs = tuple(combinations(range(masks), 2))
    if len(pairs) <= most:
        return (Tile(0, 1, pairs),)
    side = math.isqrt(most)
    groups = [range(start, stop) for start, stop in pairwise([*range(0, masks, side), masks])]
    blocks = [
        tuple(pair for pair in product(left, right) if pair[0] < pair[1])
        for left, right in combinations_with_replacement(groups, 2)
    ]
    blocks = [block for block in blocks if block]
    return tuple(Tile(number, len(blocks), block) for number, block in enumerate(blocks))


def pairs_at_once(row: Tensor, length: int, spans: int, room: int = ROOM_BYTES) -> int:
    """Pairs of masks whose counters of a tensor fit into memory; at least 1."""
    shape = shape_of(row.source_shape or ())
    by_class = CLASSES * CELLS * 8
    if shape is None:
        return max(1, room // ((spans + 1) * by_class))
    span_rows = min(shape.rows, length // (shape.width * shape.height_run) + 2)
    counts = sum(min(_CLASSES * CELLS * lines, MAX_COUNTS) for lines in (shape.rows, shape.columns))
    tensor = by_class + counts * _COUNTER_BYTES + MOST_POINTS * 2
    span = _FREQUENT * CELLS * (span_rows + shape.columns) * _COUNTER_BYTES
    listed = min(length, shape.height * shape.width) // _LISTED * _LISTED_BYTES
    return max(1, room // (tensor + spans * (by_class + span + listed)))


HELD_BYTES = 1 << 30
"""Memory for the bits and codes of a tensor that is counted in several tiles. A larger tensor is read for each
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

        tile 1   reads bits 0-4M of A, B, C       tile 2   reads bits of D, E and has A's
    """

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        source: VerifiedSource | None,
        scope: Scope,
        room: int = HELD_BYTES,
    ) -> None:
        """Read nothing yet."""
        self._artifacts, self._source, self._scope, self._room = artifacts, source, scope, room
        self._held: dict[tuple[str, int, int], _Entry] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Elsewhere the end of a tensor is not known, so nothing is held.
        return SpanReader, (self._artifacts, self._source, self._scope, 0)

    def bits(self, span: SharedSpan) -> dict[int, Packed]:
        """Packed bits of the masks that the span's tile needs, by their numbers."""
        return {number: self._once(span, number, partial(self._read_bits, span, number)) for number in span.masks}

    def codes(self, span: SharedSpan) -> npt.NDArray[np.uint16] | None:
        """The source's bf16 codes, each leaf checked; None without the source."""
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


MASKS_BYTES = 1 << 30
"""Memory for verified parts of all masks together."""


class Operands(NamedTuple):
    """Masks that can be counted together.

    Attributes:
        scope: the tensors that they share.
        source: the checkpoint of all of them, verified while it is read; None where there is none at hand.
        missing: why figures that need it are left out; empty when it is there.
    """

    scope: Scope
    source: VerifiedSource | None
    missing: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What holds for all figures, one sentence each."""
        return (*self.scope.notes, *([self.missing] if self.missing else []))


def operands_of(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None,
    *,
    allow_different: bool,
    selection: Selection,
    jobs: int,
    most: int = MAX_MASKS,
) -> Operands:
    """Check that masks can be counted together, and have them ready for threads."""
    if not 2 <= len(artifacts) <= most:
        raise UsageError(f"2 to {most:,} masks can be counted together, not {len(artifacts):,}")
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    verified, missing = _verified_if_shared(artifacts, scope, source, jobs)
    for artifact, row in zip(artifacts, scope.rows[0], strict=True):
        artifact.require("mask")
        artifact.hold_at_most(MASKS_BYTES // len(artifacts))
        artifact.mask_bits(row, 0, 0)  # opens the array once, before threads need it
    return Operands(scope, verified, missing)


def _verified_if_shared(
    artifacts: Sequence[Artifact], scope: Scope, source: Checkpoint | None, jobs: int
) -> tuple[VerifiedSource | None, str]:
    if source is not None and scope.one_source:
        one_checkpoint = len({artifact.manifest.source.root for artifact in artifacts}) == 1
        only = None if one_checkpoint else scope.tensors
        return VerifiedSource(artifacts[0], source, only=only, jobs=jobs), ""
    why = NO_SOURCE if scope.one_source else "the masks have no common source"
    return None, f"figures by exponent and the rounding null are left out: {why}"
