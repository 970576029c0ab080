"""A checkpoint in a bucket that is read again and again: it travels once, and is read from memory from then on.

Files of a disk need none of this: the system keeps them in memory by itself while there is room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from maskreg.bucket import Location
from maskreg.checkpoint.base import Checkpoint, aliases_of, expect, locations_of, place_of, remarks_on
from maskreg.closing import Closing
from maskreg.tensors.blocks import BLOCK_NUMEL

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory


class HeldCheckpoint(Closing):
    """A checkpoint whose blocks stay in memory once they were read; see :class:`maskreg.checkpoint.base.Checkpoint`.

    It takes as much memory as its tensors. Another process that it is sent to holds nothing.

    Attributes:
        remarks: what must be said of it, one sentence each.
        locations: where everything lies that decides its values.
        aliases: names under which it holds a tensor a second time.
    """

    blockwise = True

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Wrap an open checkpoint, which is closed with this one."""
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.tensors = checkpoint.tensors
        self.remarks, self.locations = remarks_on(checkpoint), locations_of(checkpoint)
        self.aliases = aliases_of(checkpoint)
        self._checkpoint = checkpoint
        self._blocks: dict[tuple[str, int], npt.NDArray[Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._checkpoint,)

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements ``[start, stop)`` of a tensor, where they lie; see :meth:`maskreg.checkpoint.base.Checkpoint.read`.

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
        """Hand on what is read soon and not held; see :class:`maskreg.checkpoint.base.Expecting`."""
        return 0 if (name, start) in self._blocks else expect(self._checkpoint, name, start, stop)

    def place_of(self, name: str, start: int) -> str:
        """The file that holds a tensor; see :class:`maskreg.checkpoint.base.Sharded`."""
        return place_of(self._checkpoint, name, start)

    def small_files(self) -> Mapping[str, Location]:
        """Config, tokenizer and license files that travel with the weights."""
        return self._checkpoint.small_files()

    def other_weights(self) -> tuple[str, ...]:
        """Names of what is never copied."""
        return self._checkpoint.other_weights()

    def close(self) -> None:
        """Free the memory, and close the checkpoint."""
        self._blocks.clear()
        self._checkpoint.close()


def _itself(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint
