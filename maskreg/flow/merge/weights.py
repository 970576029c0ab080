"""The weights of a merged model, computed block by block: what a merged model is in another process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.flow.merge.base import Known
from maskreg.flow.merge.knowing import MODEL
from maskreg.flow.merge.operands import Operands, Span
from maskreg.flow.merge.outline import Fate, fates_of
from maskreg.flow.merge.tiling import Arithmetic, Counts
from maskreg.tensors.blocks import BLOCK_NUMEL
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    from maskreg.checkpoint.base import Memory

BlockCounts = Sequence[tuple[str, int, Counts]]
"""What merging did to blocks: the tensor's name, the block's number, and the counts."""


class MergedWeights:
    """Reads as a checkpoint does, and counts what merging did. Safe to use from several threads.

    Attributes:
        operands: what is merged.
        fates: what becomes of every tensor.
        tensors: those of the merged model by name.
    """

    blockwise = True

    def __init__(
        self, operands: Operands, arithmetic: Arithmetic, fates: Sequence[Fate], known: Mapping[str, Known]
    ) -> None:
        """Nothing is read yet.

        Args:
            operands: what is merged.
            arithmetic: the method.
            fates: what becomes of every tensor.
            known: what the method has to know.
        """
        self.operands, self.fates = operands, fates
        self._arithmetic, self._known = arithmetic, known
        self._by_name = {name: fate for fate in fates for name in fate.group.names}
        self._counts: dict[tuple[str, int], Counts] = {}
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(name, fate.info.dtype, fate.info.shape)
            for name in _in_order(operands.source.checkpoint, self._by_name)
            if (fate := self._by_name[name]).info is not None
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.operands, self._arithmetic, self._known)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor; see :meth:`maskreg.checkpoint.base.Checkpoint.read`."""
        info = self.tensors[name]
        if not 0 <= start <= stop <= info.numel:
            raise ValueError(f"tensor {name} has {info.numel} elements, not [{start}, {stop})")
        size = (stop - start) * info.item_bytes
        result = np.empty(size, np.uint8) if into is None else into[:size]
        values = result.view(np.dtype(f"<u{info.item_bytes}"))
        for number in _blocks(start, stop):
            offset = number * BLOCK_NUMEL
            own = slice(max(start, offset), min(stop, offset + BLOCK_NUMEL))
            block = self._block(self._by_name[name], number)
            values[own.start - start : own.stop - start] = block[own.start - offset : own.stop - offset]
        return values

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on which blocks of the source are read soon; see :class:`maskreg.checkpoint.base.Expecting`."""
        if name not in self.tensors:
            return 0
        fate = self._by_name[name]
        reads = (
            (self._rows_around(fate, number) for number in _blocks(start, stop)) if fate.merged else ((start, stop),)
        )
        return sum(self.operands.expect(name, *span) for span in reads)

    def place_of(self, name: str, start: int) -> str:
        """The object of an artifact that a block needs; see :class:`maskreg.checkpoint.base.Sharded`."""
        return self.operands.place_of(name, start)

    def counted(self, name: str, start: int, stop: int) -> BlockCounts:
        """What merging did to the blocks of elements that were read; see :class:`maskreg.checkpoint.base.Counting`."""
        fate = self._by_name[name]
        keys = [(fate.name, number) for number in _blocks(start, stop)] if fate.merged else []
        return [(*key, self._counts[key]) for key in keys]

    def count(self, counted: BlockCounts) -> None:
        """Add what was done to blocks, here or elsewhere; see :class:`maskreg.checkpoint.base.Counting`."""
        # A block may be read several times; what is counted stays the same.
        self._counts.update({(name, number): counts for name, number, counts in counted})

    def counts_of(self, fate: Fate) -> Counts:
        """The sum over the blocks of a tensor that were read."""
        total = Counts()
        for number in _blocks(0, fate.group.rows[0].numel):
            total = total.plus(self._counts.get((fate.name, number), Counts()))
        return total

    def _block(self, fate: Fate, number: int) -> npt.NDArray[Any]:
        if fate.info is None or not fate.merged:
            # Unchanged everywhere: any artifact gives the source's values, checked.
            return self.operands.taken(max(fate.owner, 0), fate.name, number)
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, fate.info.numel)
        first, last = self._rows_around(fate, number)
        bits = self.operands.bits(Span(fate.info, first, last))
        known = self._known.get(MODEL) or self._known.get(fate.name) or Known()
        merged, counts = self._arithmetic.merged(fate.info, first, bits, known)
        self.count([(fate.name, number, counts)])
        return merged[start - first : stop - first]

    def _rows_around(self, fate: Fate, number: int) -> tuple[int, int]:
        """The elements of a block, or for methods by row all rows that it has a part of."""
        row = fate.group.rows[0]
        start, stop = number * BLOCK_NUMEL, min((number + 1) * BLOCK_NUMEL, row.numel)
        if length := self._arithmetic.rows(row.source_shape or ()):
            return start // length * length, -(-stop // length) * length
        return start, stop


def _reopened(operands: Operands, arithmetic: Arithmetic, known: Mapping[str, Known]) -> MergedWeights:
    return MergedWeights(operands, arithmetic, fates_of(operands.deltas), known)


def _blocks(start: int, stop: int) -> range:
    return range(start // BLOCK_NUMEL, -(-stop // BLOCK_NUMEL))


def _in_order(source: Checkpoint, fates: Mapping[str, Fate]) -> Iterator[str]:
    yield from source.tensors
    yield from (name for name in fates if name not in source.tensors)
