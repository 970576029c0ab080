"""A checkpoint in a bucket that is read again and again: it travels once, and is read from memory from then on.

Files on a disk do not need it: the system keeps them in memory by itself while there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.checkpoint.base import Checkpoint, Wrapped
from maskreg.tensors.info import BLOCK_NUMEL

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory


class HeldCheckpoint(Wrapped):
    """A checkpoint whose blocks stay in memory once they were read.

    It takes as much memory as its tensors. Another process that it is sent to holds nothing.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Wrap an open checkpoint, which is closed with this one."""
        super().__init__(checkpoint)
        self.blockwise = True
        self._blocks: dict[tuple[str, int], npt.NDArray[Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._checkpoint,)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor, where they lie.

        What is not a block, nor part of one that was read, is read and not held.
        """
        first = start - start % BLOCK_NUMEL
        block = self._blocks.get((name, first))
        if block is not None and start <= stop <= first + block.size:
            return block[start - first : stop - first]
        info = self.tensors[name]
        if start != first or stop != min(first + BLOCK_NUMEL, info.numel):
            return self._checkpoint.read(name, start, stop, into)
        memory = np.empty((stop - start) * info.item_bytes, np.uint8)
        block = memory.view(f"<u{info.item_bytes}")
        values = self._checkpoint.read(name, start, stop, memory)
        if not np.may_share_memory(values, memory):
            block[:] = values
        block.flags.writeable = False
        self._blocks[name, first] = block
        return block

    def expect(self, name: str, start: int, stop: int) -> int:
        """Announce what is read soon and not held."""
        return 0 if (name, start) in self._blocks else self._checkpoint.expect(name, start, stop)

    def close(self) -> None:
        """Free the memory, and close the checkpoint."""
        self._blocks.clear()
        super().close()


def _itself(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint
