"""Writing the tensors of a checkpoint that may compute them as they are read, block by block on threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint, CheckpointWriter, OutputPlan, counted_by, file_of, give_counted
from maskreg.engine import ordered
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.blocks import blocks_of, numel_of


class _Block(NamedTuple):
    # Elements of a tensor, and where their bytes begin in the stream of all tensors' data.
    name: str
    start: int
    stop: int
    offset: int


def copy_tensors(
    checkpoint: Checkpoint,
    plan: OutputPlan,
    writer: CheckpointWriter,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> None:
    """Write every tensor of a plan with the values that a checkpoint has for it.

    Memory is bounded by a block for each thread.

    Args:
        checkpoint: has the tensors of the plan, in their shapes and dtypes.
        plan: what is written.
        writer: of the plan, entered.
        progress: progress callback, in bytes; advanced only.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        MaskregError: as reading the checkpoint and writing do.
    """
    copy = _Copying(checkpoint, writer)
    blocks = ahead(_blocks(plan), lambda block: (block.name, block.start, block.stop), checkpoint)
    with closing(ordered(copy, blocks, jobs=worker_count(jobs), size=numel_of, near=copy.near)) as results:
        for offset, size, counted in results:
            writer.wrote(offset, size)
            give_counted(checkpoint, counted)
            progress.advance(size)


@dataclass(frozen=True)
class _Copying:
    """Writes a block with the values that a checkpoint has for it.

    It returns where its bytes begin, how many they are, and what the checkpoint has counted.
    """

    checkpoint: Checkpoint
    writer: CheckpointWriter
    _buffers: Buffers = field(default_factory=Buffers)

    def __call__(self, block: _Block) -> tuple[int, int, Any]:
        size = numel_of(block) * self.checkpoint.tensors[block.name].item_bytes
        # Memory that is written begins where the disk can fetch it from.
        into = self._buffers.bytes("copied", size, self.writer.phase(block.offset))
        values = self.checkpoint.read(block.name, block.start, block.stop, into)
        self.writer.put_at(block.offset, values)
        return block.offset, values.nbytes, counted_by(self.checkpoint, block.name, block.start, block.stop)

    def near(self, block: _Block) -> str:
        """The file that holds a block."""
        return file_of(self.checkpoint, block.name)


def _blocks(plan: OutputPlan) -> Iterator[_Block]:
    offset = 0
    for info in plan.tensors:
        for start, stop in blocks_of(info.numel):
            yield _Block(info.name, start, stop, offset)
            offset += (stop - start) * info.item_bytes
