"""Boxes: rectangular parts of a tensor, which is how runs divide tensors among processes.

A box has a begin and an end in every dimension, and a span of elements in C order is a few boxes::

    elements [3, 17) of a tensor of shape (5, 4)      [0:1, 3:4]    the rest of row 0
                                                      [1:4, 0:4]    rows 1 to 3
                                                      [4:5, 0:1]    the beginning of row 4
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

Shape = tuple[int, ...]
"""Sizes, positions or strides, one for each dimension."""


@dataclass(frozen=True)
class Box:
    """A rectangular part of a tensor.

    Attributes:
        begin: first position in each dimension.
        shape: its size in each dimension.
    """

    begin: Shape
    shape: Shape

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def end(self) -> Shape:
        """One past the last position in each dimension."""
        return tuple(first + size for first, size in zip(self.begin, self.shape, strict=True))

    def cut(self, box: Box) -> Box | None:
        """What this box and another of the same tensor have in common; None where that is empty."""
        begin = tuple(map(max, self.begin, box.begin))
        shape = tuple(min(a, b) - first for a, b, first in zip(self.end, box.end, begin, strict=True))
        return None if any(size <= 0 for size in shape) else Box(begin, shape)

    def seen_from(self, box: Box) -> Self:
        """This box with positions counted from the begin of another."""
        return type(self)(tuple(a - b for a, b in zip(self.begin, box.begin, strict=True)), self.shape)


def strides_of(shape: Shape) -> Shape:
    """Strides in elements of a tensor that is stored in C order."""
    strides: list[int] = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def boxes_of(shape: Shape, start: int, stop: int) -> Iterator[Box]:
    """Elements ``[start, stop)`` in C order as boxes, in this order."""
    if start >= stop:
        return
    if not shape:
        yield Box((), ())
        return
    inner = math.prod(shape[1:])
    (first, skipped), (last, rest) = divmod(start, inner), divmod(stop, inner)
    if skipped:
        yield from _within(shape, first, skipped, inner if last > first else rest)
        first += 1
    if last > first:
        yield Box((first, *(0 for _ in shape[1:])), (last - first, *shape[1:]))
    if rest and last >= first:
        yield from _within(shape, last, 0, rest)


def _within(shape: Shape, position: int, start: int, stop: int) -> Iterator[Box]:
    for box in boxes_of(shape[1:], start, stop):
        yield Box((position, *box.begin), (1, *box.shape))


def tiling_fault(shape: Shape, boxes: Sequence[Box]) -> str:
    """Why boxes do not fill a tensor, each element once; empty when they do."""
    if any(end > size for box in boxes for end, size in zip(box.end, shape, strict=True)):
        return "a part of it lies outside its shape"
    filled = sum(box.numel for box in boxes)
    if filled != math.prod(shape):
        return f"its parts have {filled:,} of {math.prod(shape):,} elements"
    # As many elements as there are, so all are there unless two parts overlap. Sorted by the dimension in which most
    # parts begin elsewhere, a part can only overlap those that begin before it ends.
    rank = range(len(shape))
    dim = max(rank, key=lambda d: len({box.begin[d] for box in boxes}), default=0)
    ordered = sorted((box for box in boxes if box.numel), key=lambda box: box.begin[dim : dim + 1])
    for index, box in enumerate(ordered):
        for later in ordered[index + 1 :]:
            if later.begin[dim] >= box.end[dim]:
                break
            if box.cut(later) is not None:
                return "parts of it overlap"
    return ""
