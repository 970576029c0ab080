"""The work on one span of several masks: read their bits and the source's codes, and count. Runs on any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from maskreg.analysis.contingency import Cells, Packed, count_agreeing, count_both, count_classes, count_stripes
from maskreg.analysis.grid import CELLS, SpanGrid, count_grid, shape_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope
from maskreg.artifact.tensors import Tensor
from maskreg.mask.rounding import CLASSES
from maskreg.tensors.blocks import blocks_of
from maskreg.update.verified import VerifiedSource

BITS_NUMEL = 1 << 25
"""Coordinates at a time when only bits are read: 4 MiB of each mask."""


class SharedSpan(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor that several masks cover, by its row in each artifact."""

    rows: tuple[Tensor, ...]
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        """Whether it is the last span of its tensor."""
        return self.stop == self.rows[0].numel


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """The counts of a span. Those of a tensor are the sum over its spans.

    Attributes:
        span: which one; of a sum, the last.
        pairs: int64 for every pair of masks: ``[512, 4]``, 2x2 tables by class of the source's codes; without the
            source ``[1, 4]``.
        agreeing: int64 ``[masks + 1]``, coordinates by how many masks hold them; empty for two masks.
        stripes: for every mask its coordinates by row and by column; empty where there are no stripes.
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
        lines: count every pair by row and by column.
    """

    artifacts: Sequence[Artifact]
    source: VerifiedSource | None
    stripes: bool
    lines: bool

    def __call__(self, span: SharedSpan) -> SpanCounts:
        """Count one span.

        Raises:
            WrongCheckpointError: the source's elements are not those that the masks were made from.
            DataError: an artifact is damaged.
        """
        rows, start, stop = span
        masks = [artifact.mask_bits(row, start, stop) for artifact, row in zip(self.artifacts, rows, strict=True)]
        codes = None if self.source is None else self.source.codes(rows[0].name, start, stop)
        grids: tuple[SpanGrid, ...] = ()
        if self.lines and (shape := shape_of(rows[0].source_shape or ())) is not None:
            # Without the source, all codes are of one class.
            known = np.zeros(stop - start, np.uint16) if codes is None else codes
            grids = tuple(count_grid(left, right, known, start, shape) for left, right in combinations(masks, 2))
        if grids:
            pairs = tuple(_by_class(grid, codes is None) for grid in grids)
        else:
            pairs = tuple(
                _unclassed(left, right, stop - start) if codes is None else count_classes(left, right, codes)
                for left, right in combinations(masks, 2)
            )
        return SpanCounts(
            span,
            pairs,
            count_agreeing(masks, stop - start) if len(masks) > 2 else np.zeros(0, np.int64),
            tuple(_stripes(mask, span) for mask in masks) if self.stripes and _is_matrix(rows[0]) else (),
            grids,
        )

    def nbytes(self, span: SharedSpan) -> int:
        """Bytes that are read for a span."""
        numel = span.stop - span.start
        item_bytes = self.source.checkpoint.tensors[span.rows[0].name].item_bytes if self.source else 0
        return numel * len(self.artifacts) // 8 + numel * item_bytes


def spans_of(scope: Scope, with_source: bool) -> Iterator[SharedSpan]:
    """Spans of all tensors, in order: blocks, or longer ones when only bits are read."""
    for rows in scope.rows:
        numel = rows[0].numel
        if with_source:
            yield from (SharedSpan(rows, start, stop) for start, stop in blocks_of(numel))
        else:
            for start in range(0, numel, BITS_NUMEL):
                yield SharedSpan(rows, start, min(start + BITS_NUMEL, numel))


def _is_matrix(row: Tensor) -> bool:
    return row.source_shape is not None and len(row.source_shape) == 2


def _by_class(grid: SpanGrid, as_one: bool) -> Cells:
    if as_one:
        whole: Cells = grid.rows.sum((0, 1)).reshape(1, CELLS)
        return whole
    cells = np.zeros((CLASSES, CELLS), np.int64)
    cells[grid.classes] = grid.rows.sum(0)
    return cells


def _unclassed(left: Packed, right: Packed, numel: int) -> Cells:
    a, b, both = count_both(left, right)
    return np.array([[numel - a - b + both, a - both, b - both, both]], np.int64)


def _stripes(packed: Packed, span: SharedSpan) -> tuple[Cells, Cells]:
    height, width = span.rows[0].source_shape or (0, 0)
    rows, columns = np.zeros(height, np.int64), np.zeros(width, np.int64)
    count_stripes(packed, span.start, span.stop - span.start, rows, columns)
    return rows, columns
