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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import (
    CELLS,
    MAX_MASKS,
    MOST_CROSSED,
    Cells,
    Packed,
    count_agreeing,
    count_both,
    count_classes,
    count_crossed,
    count_stripes,
)
from maskreg.analysis.evidence import NO_SOURCE
from maskreg.analysis.grid import MAX_COUNTS, MOST_POINTS, SpanGrid, count_grid, shape_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import Selection
from maskreg.errors import UsageError
from maskreg.mask.rounding import CLASSES
from maskreg.tensors.info import BLOCK_NUMEL, ITEM_BYTES
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
    """Pairs of masks that are counted together: the ``number``-th of so many ``tiles`` of a tensor, from 0."""

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
    # Two groups of this size have no more pairs than fit.
    side = math.isqrt(most)
    groups = [range(start, stop) for start, stop in pairwise([*range(0, masks, side), masks])]
    blocks = [
        tuple(pair for pair in product(left, right) if pair[0] < pair[1])
        for left, right in combinations_with_replacement(groups, 2)
    ]
    blocks = [block for block in blocks if block]
    return tuple(Tile(number, len(blocks), block) for number, block in enumerate(blocks))


def pairs_at_once(row: Tensor, length: int, spans: int) -> int:
    """Pairs of masks whose counters of a tensor fit into memory; at least 1."""
    shape = shape_of(row.source_shape or ())
    by_class = CLASSES * CELLS * 8
    if shape is None:
        return max(1, ROOM_BYTES // ((spans + 1) * by_class))
    span_rows = min(shape.rows, length // (shape.width * shape.height_run) + 2)
    counts = sum(min(_CLASSES * CELLS * lines, MAX_COUNTS) for lines in (shape.rows, shape.columns))
    tensor = by_class + counts * _COUNTER_BYTES + MOST_POINTS * 2
    span = _FREQUENT * CELLS * (span_rows + shape.columns) * _COUNTER_BYTES
    listed = min(length, shape.height * shape.width) // _LISTED * _LISTED_BYTES
    return max(1, ROOM_BYTES // (tensor + spans * (by_class + span + listed)))


HELD_BYTES = 1 << 30
"""Memory for the bits and codes of a tensor that is counted in several tiles. A larger tensor is read for each
tile."""


class SharedSpan(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor that several masks cover, by its row in each artifact."""

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


class SpanReader:
    """Reads spans. Safe to call from many threads.

    Where the bits and codes of a tensor fit into memory, the first tile that needs a span of a mask reads it, and the
    others wait for it::

        tile 1   reads bits 0-4M of A, B, C       tile 2   reads bits of D, E and has A's
    """

    def __init__(self, artifacts: Sequence[Artifact], source: VerifiedSource | None, scope: Scope) -> None:
        """Read nothing yet."""
        self.with_source = source is not None
        self._artifacts, self._source, self._scope = artifacts, source, scope
        self._held: dict[tuple[str, int, int], tuple[threading.Lock, list[Any]]] = {}
        self._lock = threading.Lock()

    def bits(self, span: SharedSpan) -> dict[int, Packed]:
        """Packed bits of the masks that the span's tile needs, by their numbers."""
        rows, start, stop, _ = span
        return {
            number: self._once(span, number, partial(self._artifacts[number].mask_bits, rows[number], start, stop))
            for number in span.masks
        }

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

    def _once(self, span: SharedSpan, mask: int, read: Callable[[], Any]) -> Any:
        codes = 0 if self._source is None else 2 * span.rows[0].numel
        if span.tile.tiles == 1 or span.rows[0].numel // 8 * len(span.rows) + codes > HELD_BYTES:
            return read()
        with self._lock:
            reading, values = self._held.setdefault((span.rows[0].name, span.start, mask), (threading.Lock(), []))
        with reading:
            if not values:
                values.append(read())
            return values[0]


MASKS_BYTES = 1 << 30
"""Memory for verified parts of all masks together."""


class Operands(NamedTuple):
    """Masks that can be counted together: the tensors that they share, and the verified checkpoint of all of them.

    Where there is none at hand, ``missing`` says why figures that need it are left out.
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
) -> Operands:
    """Check that masks can be counted together, and have them ready for threads."""
    if not 2 <= len(artifacts) <= MAX_MASKS:
        raise UsageError(f"2 to {MAX_MASKS} masks can be counted together, not {len(artifacts):,}")
    scope = scope_of(artifacts, allow_different=allow_different, selection=selection)
    verified, missing = None, ""
    if source is not None and scope.one_source:
        one_checkpoint = len({artifact.manifest.source.root for artifact in artifacts}) == 1
        only = None if one_checkpoint else scope.tensors
        verified = VerifiedSource(artifacts[0], source, only=only, jobs=jobs)
    else:
        why = NO_SOURCE if scope.one_source else "the masks have no common source"
        missing = f"figures by exponent and the rounding null are left out: {why}"
    for artifact, row in zip(artifacts, scope.rows[0], strict=True):
        artifact.require("mask")
        artifact.hold_at_most(MASKS_BYTES // len(artifacts))
        artifact.mask_bits(row, 0, 0)  # opens the array once, before threads need it
    return Operands(scope, verified, missing)


BITS_NUMEL = 1 << 25
"""Coordinates at a time when only bits are read: 4 MiB of each mask."""


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """The counts of a span, or of several of a tensor; then ``span`` is the last.

    Attributes:
        pairs: int64 for every pair of its tile: ``[512, 4]``, 2x2 tables by class of the source's codes; without the
            source ``[1, 4]``.
        held: int64 ``[2 ** masks]``, coordinates by which masks hold them, as
            :func:`~maskreg.analysis.contingency.count_crossed` numbers them; of more than six masks ``[masks + 1]``, by
            how many hold them; empty for two masks, and for all tiles but the first.
        stripes: for every mask its coordinates by row and by column; empty where there are no stripes, and for all
            tiles but the first.
        grids: of the span alone, for every pair its tables by row and by column; empty where they are not counted.
    """

    span: SharedSpan
    pairs: tuple[Cells, ...]
    held: Cells
    stripes: tuple[tuple[Cells, Cells], ...]
    grids: tuple[SpanGrid, ...] = ()

    def __add__(self, other: SpanCounts) -> SpanCounts:
        return SpanCounts(
            other.span,
            tuple(left + right for left, right in zip(self.pairs, other.pairs, strict=True)),
            self.held + other.held,
            tuple(
                (rows + more_rows, columns + more_columns)
                for (rows, columns), (more_rows, more_columns) in zip(self.stripes, other.stripes, strict=True)
            ),
        )


@dataclass(frozen=True)
class SpanCounter:
    """Counts spans, on any thread: reads the bits of masks and the source's codes. Without codes there are no classes.

    Every pair of masks gets one 2x2 table per class of source weights, because chance differs between classes: bf16
    rounding moves small weights more often than large ones. A class is an exponent, with mantissa 0 apart (below it,
    neighbors are half as far). Coordinates of one class of a tensor, masks A and B::

        A  1 1 0 0 1 0
        B  1 0 0 0 1 1      ->  row of the table: neither 2, only A 1, only B 1, both 2

    From these rows follow all figures and all their expectations by chance; no second pass over the weights is needed.
    With ``stripes``, rows and columns of every mask are counted too.
    """

    reader: SpanReader
    stripes: bool

    def __call__(self, span: SharedSpan) -> SpanCounts:
        """Count one span."""
        rows, start, stop, tile = span
        masks, codes = self.reader.bits(span), self.reader.codes(span)
        operands = [(masks[a], masks[b]) for a, b in tile.pairs]
        grids: tuple[SpanGrid, ...] = ()
        if (shape := shape_of(rows[0].source_shape or ())) is not None:
            grids = tuple(count_grid(left, right, codes, stop - start, start, shape) for left, right in operands)
            pairs = tuple(grid.cells[:1] if codes is None else grid.cells for grid in grids)
        else:
            pairs = tuple(
                _unclassed(left, right, stop - start) if codes is None else count_classes(left, right, codes)
                for left, right in operands
            )
        first = not tile.number
        count_held = count_crossed if len(masks) <= MOST_CROSSED else count_agreeing
        return SpanCounts(
            span,
            pairs,
            count_held(list(masks.values()), stop - start) if first and len(masks) > 2 else np.zeros(0, np.int64),
            tuple(_stripes(mask, span) for mask in masks.values())
            if first and self.stripes and len(rows[0].source_shape or ()) == 2
            else (),
            grids,
        )

    def nbytes(self, span: SharedSpan) -> int:
        """Bytes that a span's tile works through."""
        numel = span.stop - span.start
        item_bytes = ITEM_BYTES[span.rows[0].source_dtype] if self.reader.with_source else 0
        return numel * len(span.masks) // 8 + numel * item_bytes


def spans_of(scope: Scope, with_source: bool, in_flight: int) -> Iterator[SharedSpan]:
    """Spans of all tensors, in order, for each tile of pairs: blocks, or longer ones when only bits are read."""
    for rows in scope.rows:
        numel = rows[0].numel
        length = BLOCK_NUMEL if with_source else BITS_NUMEL
        for tile in tiles_of(len(rows), pairs_at_once(rows[0], length, in_flight)):
            for start in range(0, numel, length):
                yield SharedSpan(rows, start, min(start + length, numel), tile)


def _unclassed(left: Packed, right: Packed, numel: int) -> Cells:
    a, b, both = count_both(left, right)
    return np.array([[numel - a - b + both, a - both, b - both, both]], np.int64)


def _stripes(packed: Packed, span: SharedSpan) -> tuple[Cells, Cells]:
    height, width = span.rows[0].source_shape or (0, 0)
    rows, columns = np.zeros(height, np.int64), np.zeros(width, np.int64)
    count_stripes(packed, span.start, span.stop - span.start, rows, columns)
    return rows, columns
