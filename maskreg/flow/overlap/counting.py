"""The work on one span of several masks: read their bits and the source's codes, and count. Runs on any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maskreg.analysis.contingency import Cells, Packed, count_agreeing, count_both, count_classes, count_stripes
from maskreg.analysis.grid import SpanGrid, count_grid, count_unclassed, shape_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope
from maskreg.artifact.tensors import Tensor
from maskreg.flow.overlap.reading import SharedSpan, SpanReader, pairs_at_once, tiles_of
from maskreg.tensors.info import BLOCK_NUMEL, ITEM_BYTES
from maskreg.update.verified import VerifiedSource

BITS_NUMEL = 1 << 25
"""Coordinates at a time when only bits are read: 4 MiB of each mask."""


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """The counts of a span; a tensor's are the sum over its spans.

    Attributes:
        span: which one; of a sum, the last.
        pairs: int64 for every pair of its tile: ``[512, 4]``, 2x2 tables by class of the source's codes; without the
            source ``[1, 4]``.
        agreeing: int64 ``[masks + 1]``, coordinates by how many masks hold them; empty for two masks, and for all
            tiles but the first.
        stripes: for every mask its coordinates by row and by column; empty where there are no stripes, and for all
            tiles but the first.
        grids: of the span alone, for every pair its tables by row and by column; empty where they are not counted.
    """

    span: SharedSpan
    pairs: tuple[Cells, ...]
    agreeing: Cells
    stripes: tuple[tuple[Cells, Cells], ...]
    grids: tuple[SpanGrid, ...] = ()

    def __add__(self, other: SpanCounts) -> SpanCounts:
        return SpanCounts(
            other.span,
            tuple(left + right for left, right in zip(self.pairs, other.pairs, strict=True)),
            self.agreeing + other.agreeing,
            tuple(
                (rows + more_rows, columns + more_columns)
                for (rows, columns), (more_rows, more_columns) in zip(self.stripes, other.stripes, strict=True)
            ),
        )


@dataclass(frozen=True)
class SpanCounter:
    """Counts spans. Safe to call from many threads.

    Every pair of masks gets one 2x2 table per class of source weights, because chance differs between classes: bf16
    rounding moves small weights more often than large ones. A class is an exponent, with mantissa 0 apart (below it,
    neighbors are half as far). Coordinates of one class of a tensor, masks A and B::

        A  1 1 0 0 1 0
        B  1 0 0 0 1 1      ->  row of the table: neither 2, only A 1, only B 1, both 2

    From these rows follow all figures and all their expectations by chance; no second pass over the weights is needed.

    Attributes:
        artifacts: the masks.
        source: the checkpoint that they were made from; None counts without classes.
        stripes: count rows and columns of every mask too.
        reader: of both.
    """

    artifacts: Sequence[Artifact]
    source: VerifiedSource | None
    stripes: bool
    reader: SpanReader

    def __call__(self, span: SharedSpan) -> SpanCounts:
        """Count one span."""
        rows, start, stop, tile = span
        masks, codes = self.reader.bits(span), self.reader.codes(span)
        operands = [(masks[a], masks[b]) for a, b in tile.pairs]
        grids: tuple[SpanGrid, ...] = ()
        if (shape := shape_of(rows[0].source_shape or ())) is not None:
            grids = tuple(
                count_unclassed(left, right, stop - start, start, shape)
                if codes is None
                else count_grid(left, right, codes, start, shape)
                for left, right in operands
            )
            pairs = tuple(grid.cells[:1] if codes is None else grid.cells for grid in grids)
        else:
            pairs = tuple(
                _unclassed(left, right, stop - start) if codes is None else count_classes(left, right, codes)
                for left, right in operands
            )
        first = not tile.number
        return SpanCounts(
            span,
            pairs,
            count_agreeing(list(masks.values()), stop - start) if first and len(masks) > 2 else np.zeros(0, np.int64),
            tuple(_stripes(mask, span) for mask in masks.values())
            if first and self.stripes and _is_matrix(rows[0])
            else (),
            grids,
        )

    def nbytes(self, span: SharedSpan) -> int:
        """Bytes that a span's tile works through."""
        numel = span.stop - span.start
        item_bytes = ITEM_BYTES[span.rows[0].source_dtype] if self.source else 0
        return numel * len(span.masks) // 8 + numel * item_bytes


def spans_of(scope: Scope, with_source: bool, in_flight: int) -> Iterator[SharedSpan]:
    """Spans of all tensors, in order, for each tile of pairs: blocks, or longer ones when only bits are read."""
    for rows in scope.rows:
        numel = rows[0].numel
        length = BLOCK_NUMEL if with_source else BITS_NUMEL
        for tile in tiles_of(len(rows), pairs_at_once(rows[0], length, in_flight)):
            for start in range(0, numel, length):
                yield SharedSpan(rows, start, min(start + length, numel), tile)


def _is_matrix(row: Tensor) -> bool:
    return row.source_shape is not None and len(row.source_shape) == 2


def _unclassed(left: Packed, right: Packed, numel: int) -> Cells:
    a, b, both = count_both(left, right)
    return np.array([[numel - a - b + both, a - both, b - both, both]], np.int64)


def _stripes(packed: Packed, span: SharedSpan) -> tuple[Cells, Cells]:
    height, width = span.rows[0].source_shape or (0, 0)
    rows, columns = np.zeros(height, np.int64), np.zeros(width, np.int64)
    count_stripes(packed, span.start, span.stop - span.start, rows, columns)
    return rows, columns
