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
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import NamedTuple

from maskreg.analysis.contingency import CELLS
from maskreg.analysis.grid import MAX_COUNTS, MOST_POINTS, shape_of
from maskreg.artifact.tensors import Tensor
from maskreg.mask.rounding import CLASSES

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
        number: of the tile among those of its tensor, from 0.
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
    """All pairs of some masks, each in one tile.

    Args:
        masks: how many.
        most: pairs that a tile may have; at least 1.
    """
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
    """Pairs of masks whose counters of a tensor fit into memory; at least 1.

    Args:
        row: the tensor.
        length: coordinates of a span.
        spans: how many spans of it may be counted, or wait to be added up, at the same time.
        room: bytes of memory.
    """
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
