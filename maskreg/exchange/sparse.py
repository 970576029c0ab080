"""Sparse values: flat indices in ascending order and the target's elements there, written and read span by span.

A reader does not hold a tensor's indices. It finds by bisection where those of a span begin and end, and checks what
it reads. Spans follow each other, so their pieces do too: if each is ascending and within its span, all indices are
ascending, unique and within the tensor::

    indices of the file     3 17 20 | 33 40 | 64 ...
    span                    0..31   | 32..63 | 64..95
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import FormatError
from maskreg.exchange.outgoing import ChangedSpan, Outgoing, require_count
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    import numpy.typing as npt

INDICES, VALUES = ".indices", ".values"
"""Ends of the names of tensors with indices, and with values."""

INDEX_DTYPES = {"I32": np.int32, "I64": np.int64, "U32": np.uint32}
"""Dtypes that indices may have."""

_INT32 = 1 << 31
# The sign bit, and what remains of infinity without it; anything above is NaN.
_INFINITY = {
    "BF16": (1 << 15, 0x7F80),
    "F16": (1 << 15, 0x7C00),
    "F32": (1 << 31, 0x7F80_0000),
    "F64": (1 << 63, 0x7FF0_0000_0000_0000),
}


class SparseSpan(NamedTuple):
    """The changed elements of a span.

    Attributes:
        indices: int64, ascending, of the whole tensor in C order.
        values: the target's bits there, unsigned integers of the element's width.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]


def changes_of(span: ChangedSpan) -> SparseSpan:
    """The elements of a span whose bits change."""
    local = np.flatnonzero(span.before != span.after)
    return SparseSpan(local + span.start, span.after[local])


def counted_changes(
    update: Outgoing, work: Callable[[ChangedSpan], SparseSpan] = changes_of
) -> Iterator[tuple[TensorInfo, SparseSpan, int]]:
    """The changes of every span, in order: the tensor, the changes, and how many of the tensor came before them.

    Args:
        update: whose counts have been written already, at the beginning of a file.
        work: gives the changes of a span.

    Raises:
        CorruptError: a tensor has more or fewer changes than its count says.
    """
    done = dict.fromkeys(update.changed, 0)
    with closing(update.map(work)) as results:
        for span, changes in results:
            info, before = update.changed[span.name], done[span.name]
            done[span.name] += changes.indices.size
            # Before they are written, for a surplus would reach into the bytes of the next tensor.
            if span.stop == info.numel or done[span.name] > update.counts[span.name]:
                require_count(span.name, update.counts[span.name], done[span.name])
            yield info, changes, before


def stored_pair(stem: str, info: TensorInfo, count: int) -> tuple[TensorInfo, TensorInfo]:
    """The tensors of a safetensors file that hold indices and values of some changes.

    Args:
        stem: beginning of both names.
        info: the tensor that changes.
        count: how many changes.
    """
    return (
        TensorInfo(stem + INDICES, index_dtype(info.numel), (count,)),
        TensorInfo(stem + VALUES, info.dtype, (count,)),
    )


def index_dtype(numel: int) -> str:
    """The narrowest dtype for flat indices of a tensor: ``I32`` up to 2^31 elements, else ``I64``."""
    return "I32" if numel <= _INT32 else "I64"


def is_nan(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.bool_]:
    """Which stored values are NaN; those of other than floating-point dtypes are not."""
    if dtype not in _INFINITY:
        return np.zeros(bits.shape, np.bool_)
    sign, infinity = _INFINITY[dtype]
    nan: npt.NDArray[np.bool_] = (bits & bits.dtype.type(sign - 1)) > infinity
    return nan


class Piece(Protocol):
    """Indices and values of a tensor in one file, or a part of them."""

    @property
    def count(self) -> int:
        """How many elements it changes."""

    def index(self, at: int, stop: int) -> npt.NDArray[np.int64]:
        """Flat indices of its changes ``[at, stop)``.

        Raises:
            DataError: they cannot be indices of the tensor.
        """

    def change(self, at: int, stop: int, before: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What its changes ``[at, stop)`` make of the source's elements there.

        Raises:
            DataError: a value that the format forbids.
        """


@dataclass(frozen=True)
class StoredPiece:
    """Indices and the target's elements, each as a tensor of a safetensors file; a :class:`Piece`.

    Attributes:
        file: an open safetensors file.
        indices: name of the tensor with the indices.
        values: name of the tensor with the values.
        info: the tensor that they are of.
        allow_nan: values may be NaN.
    """

    file: Checkpoint
    indices: str
    values: str
    info: TensorInfo
    allow_nan: bool = True

    def __post_init__(self) -> None:
        """Check dtypes and shapes.

        Raises:
            FormatError: they do not fit the tensor.
        """
        indices, values = (self.file.tensors[name] for name in (self.indices, self.values))
        if indices.dtype not in INDEX_DTYPES:
            raise self._fault(f"its indices are {indices.dtype}, not {', '.join(INDEX_DTYPES)}")
        if values.dtype != self.info.dtype:
            raise self._fault(f"its values are {values.dtype}; the source has {self.info.dtype}")
        if len(indices.shape) != 1 or indices.shape != values.shape:
            raise self._fault(f"indices {list(indices.shape)} with values {list(values.shape)}")

    @property
    def count(self) -> int:
        """How many elements it changes."""
        return self.file.tensors[self.indices].numel

    def index(self, at: int, stop: int) -> npt.NDArray[np.int64]:
        """See :class:`Piece`."""
        stored = self.file.read(self.indices, at, stop)
        return stored.view(INDEX_DTYPES[self.file.tensors[self.indices].dtype]).astype(np.int64)

    def change(self, at: int, stop: int, before: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """See :class:`Piece`."""
        values = self.file.read(self.values, at, stop)
        if not self.allow_nan and is_nan(values, self.info.dtype).any():
            raise self._fault("a value is NaN, which this format reserves for elements that stay")
        return values

    def _fault(self, fault: str) -> FormatError:
        return FormatError(f"tensor {self.info.name}: {fault}")


class SparsePatch:
    """Sparse changes of one tensor, in one piece or several; a :class:`maskreg.exchange.patched.Patch`."""

    def __init__(self, info: TensorInfo, pieces: Sequence[Piece]) -> None:
        """Check counts; indices and values are checked where they are read.

        Args:
            info: the tensor.
            pieces: one after another; indices ascend over all of them.

        Raises:
            FormatError: more changes than elements.
        """
        self._info = info
        self._pieces = tuple(pieces)
        self._ends = list(accumulate(piece.count for piece in pieces))
        self._positions: dict[int, int] = {0: 0, info.numel: self._count}
        if self._count > info.numel:
            raise self._fault(f"{self._count:,} indices for {info.numel:,} elements")

    def apply(self, start: int, stop: int, values: npt.NDArray[Any]) -> None:
        """Change the elements that lie in ``[start, stop)``; see :class:`~maskreg.exchange.patched.Patch`."""
        first = self._position(start)
        # No more indices than elements lie in between.
        last = self._position(stop, first, min(self._count, first + stop - start))
        before = start - 1
        for piece, at, end in self._parts(first, last):
            indices = piece.index(at, end)
            if indices[0] <= before or indices[-1] >= stop or (indices[1:] <= indices[:-1]).any():
                raise self._fault(self._order_fault(indices))
            before = int(indices[-1])
            local = indices - start
            values[local] = piece.change(at, end, values[local])

    @property
    def _count(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _position(self, element: int, least: int = 0, most: int | None = None) -> int:
        """How many indices lie before an element, if they ascend: the same number each time, also where they do not."""
        if element not in self._positions:
            at = bisect_left(_Lookup(self), element, least, self._count if most is None else most)
            return self._positions.setdefault(element, at)
        return self._positions[element]

    def _parts(self, first: int, last: int) -> list[tuple[Piece, int, int]]:
        """What ``[first, last)`` of all indices is in the single pieces."""
        if first > last:
            raise self._fault("indices are not in ascending order")
        parts = []
        for piece, end in zip(self._pieces, self._ends, strict=True):
            begin = end - piece.count
            at, until = max(first, begin), min(last, end)
            if at < until:
                parts.append((piece, at - begin, until - begin))
        return parts

    def _order_fault(self, indices: npt.NDArray[np.int64]) -> str:
        outside = indices[(indices < 0) | (indices >= self._info.numel)]
        if outside.size:
            return f"index {int(outside[0])} is not within its {self._info.numel:,} elements"
        repeated = indices[1:][indices[1:] == indices[:-1]]
        if repeated.size:
            return f"index {int(repeated[0])} appears twice"
        return "indices are not in ascending order"

    def _fault(self, fault: str) -> FormatError:
        return FormatError(f"tensor {self._info.name}: {fault}")


class _Lookup(Sequence[int]):
    """All indices of a patch as a sequence that reads one at a time, for bisection."""

    def __init__(self, patch: SparsePatch) -> None:
        self._patch = patch

    def __len__(self) -> int:
        return self._patch._count

    def __getitem__(self, position: Any) -> Any:
        ((piece, at, end),) = self._patch._parts(position, position + 1)
        return int(piece.index(at, end)[0])
