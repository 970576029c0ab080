"""Checkpoints whose tensors lie in pieces: each a box of a tensor, somewhere in a file, in C order or not.

Files of ``torch.save`` have one piece for each tensor, the shards of a run one or more for each process. A span of
elements is read piece by piece, so memory is bounded by the span::

    tensor (4, 6) of two processes, sharded by columns      span [6, 18): rows 1 and 2
        piece 0: columns 0 to 2, in file 0                      read 6 elements at row 1 of piece 0, put them into 0..2
        piece 1: columns 3 to 5, in file 1                      read 6 elements at row 1 of piece 1, put them into 3..5
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from maskreg.bucket import Location
from maskreg.checkpoint.base import Memory
from maskreg.checkpoint.files import AGAIN, Files, OpenFile, StoredCheckpoint
from maskreg.checkpoint.renaming import tied
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import CorruptError, FormatError
from maskreg.tensors.info import TensorInfo

# Boxes: rectangular parts of a tensor, which is how runs divide tensors among processes.
#
# A box has a begin and an end in every dimension, and a span of elements in C order is a few boxes::
#
#     elements [3, 17) of a tensor of shape (5, 4)      [0:1, 3:4]    the rest of row 0
#                                                       [1:4, 0:4]    rows 1 to 3
#                                                       [4:5, 0:1]    the beginning of row 4

Shape = tuple[int, ...]
"""Sizes, positions or strides, one for each dimension."""


@dataclass(frozen=True)
class Box:
    """A rectangular part of a tensor. ``begin``: first position in each dimension."""

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


_WINDOW_BYTES = 8 << 20
_WASTE = 16
_ALIGNMENT = [
    "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64",
    "I64", "U64",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, and where in a file its elements lie: a byte offset, and strides in elements."""

    box: Box
    file: OpenFile
    offset: int
    strides: Shape


@dataclass
class Contents:
    """What a format has found in its files: tensors, the pieces that fill each, and notes on what was left out."""

    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    pieces: dict[str, Sequence[Piece]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def add(self, info: TensorInfo, pieces: Sequence[Piece], document: str) -> None:
        """Add a tensor."""
        if info.name in self.tensors:
            raise FormatError(f"{document}: tensor {info.name} is there twice")
        if fault := tiling_fault(info.shape, [piece.box for piece in pieces]):
            raise FormatError(f"{document}: tensor {info.name}: {fault}", hint=AGAIN)
        self.tensors[info.name] = info
        self.pieces[info.name] = pieces


class PiecewiseCheckpoint(StoredCheckpoint):
    """A checkpoint whose tensors lie in pieces."""

    def __init__(
        self,
        format: str,
        path: Location,
        files: Files,
        contents: Contents,
        *,
        companions: Location | None = None,
        own: frozenset[str] = frozenset(),
        hub: str = "",
    ) -> None:
        """Take over open files."""
        super().__init__(path, files, companions, own, hub)
        self.format = format
        self.tensors: Mapping[str, TensorInfo] = {
            info.name: info
            # As the safetensors library would write them, so that artifacts list the tensors in the same order.
            for info in sorted(contents.tensors.values(), key=lambda info: (-_ALIGNMENT.index(info.dtype), info.name))
        }
        self.remarks = contents.notes
        self._pieces = {name: _Sorted(pieces) for name, pieces in contents.pieces.items()}
        self.aliases: Mapping[str, str] = tied(self, contents.pieces)
        self.tensors = {name: info for name, info in self.tensors.items() if name not in self.aliases}

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor."""
        info = self._checked(name, start, stop)
        memory = np.empty((stop - start) * info.item_bytes, np.uint8) if into is None else into
        values = memory.view(np.dtype(f"<u{info.item_bytes}"))
        self._pieces[name].read(info, start, stop, values)
        return values


def same_elements(info: TensorInfo, left: Sequence[Piece], right: Sequence[Piece]) -> bool:
    """Whether two sets of pieces hold the same bytes of a tensor."""
    sides = _Sorted(left), _Sorted(right)
    memory = [np.empty(min(info.numel, LEAF_NUMEL), np.dtype(f"<u{info.item_bytes}")) for _ in sides]
    for start in range(0, info.numel, LEAF_NUMEL):
        stop = min(start + LEAF_NUMEL, info.numel)
        for side, values in zip(sides, memory, strict=True):
            side.read(info, start, stop, values[: stop - start])
        if not np.array_equal(memory[0][: stop - start], memory[1][: stop - start]):
            return False
    return True


class _Sorted:
    """The pieces of a tensor, sorted by where they begin in the first dimension."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: piece.box.begin)
        self._begins = [piece.box.begin[0] if piece.box.begin else 0 for piece in self._pieces]
        self._longest = max((piece.box.shape[0] for piece in pieces if piece.box.shape), default=1)

    def read(self, info: TensorInfo, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Read elements ``[start, stop)`` of a tensor into ``values``."""
        strides = strides_of(info.shape)
        for box in boxes_of(info.shape, start, stop):
            for piece, part in self._within(box):
                first = sum(position * stride for position, stride in zip(part.begin, strides, strict=True)) - start
                # The same memory as a box: elements that lie apart in it are written where they belong.
                view = np.ndarray(
                    part.shape,
                    values.dtype,
                    values,
                    first * info.item_bytes,
                    tuple(stride * info.item_bytes for stride in strides),
                )
                _read_box(info.name, piece, part.seen_from(piece.box), view)

    def _within(self, box: Box) -> Iterator[tuple[Piece, Box]]:
        """Pieces that have elements of a box, and which."""
        begin, end = (box.begin[0], box.end[0]) if box.begin else (0, 1)
        first, last = bisect_right(self._begins, begin - self._longest), bisect_left(self._begins, end)
        for piece in self._pieces[first:last]:
            if (part := box.cut(piece.box)) is not None:
                yield piece, part


def _read_box(name: str, piece: Piece, part: Box, into: npt.NDArray[Any]) -> None:
    """Read a part of a piece, its positions counted from the piece's begin.

    In the order of the file, the innermost dimensions are read together: as one run, or as a window with other elements
    between, unless it would hold far more of them::

        strides (1, 1000), part (2, 900), of 1000 rows      window of 899,002 elements for 1,800: too many, so
                                                            900 reads of 2 elements each
    """
    item = into.dtype.itemsize
    first = piece.offset + item * sum(a * b for a, b in zip(part.begin, piece.strides, strict=True))
    # Where a dimension has one position, its stride says nothing.
    dims = sorted((d for d, size in enumerate(part.shape) if size > 1), key=lambda d: -piece.strides[d])
    outer, useful, window = len(dims), 1, 1
    while outer:
        dim = dims[outer - 1]
        wider = window + (part.shape[dim] - 1) * piece.strides[dim]
        useful *= part.shape[dim]
        if wider != useful and (wider > _WASTE * useful or wider * item > _WINDOW_BYTES):
            break
        window, outer = wider, outer - 1
    inner = dims[outer:]
    # The last dimensions have one position each; the dots keep a view a view where it has no dimension at all.
    view = into.transpose([*dims, *(d for d, size in enumerate(part.shape) if size <= 1)])
    shape = tuple(part.shape[d] for d in inner) + (1,) * (into.ndim - len(dims))
    begin: tuple[Any, ...] = (*((slice(0, 1),) * outer), ...)
    sample = view[begin]
    direct = window == sample.size and sample.flags.c_contiguous
    apart = np.empty(0 if direct else window, into.dtype)
    strides = tuple(piece.strides[d] * item for d in inner) + (item,) * (into.ndim - len(dims))
    for at in np.ndindex(*(part.shape[d] for d in dims[:outer])):
        offset = first + item * sum(i * piece.strides[d] for i, d in zip(at, dims[:outer], strict=True))
        index: tuple[Any, ...] = (*(slice(i, i + 1) for i in at), ...)
        target = view[index]
        memory = target.reshape(-1) if direct else apart
        if not piece.file.fill(memory.view(np.uint8).data, offset):
            raise CorruptError(name, f"{piece.file.path} was cut short while it was read")
        if not direct:
            target[...] = np.ndarray(shape, into.dtype, memory, 0, strides)
