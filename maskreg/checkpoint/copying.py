"""Writing the tensors of a checkpoint that may compute them as they are read, block by block on threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint, CheckpointWriter, OutputPlan, counted_by, give_counted, place_of
from maskreg.checkpoint.filling import fill
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.blocks import blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt


class _Block(NamedTuple):
    # Elements of a tensor, and their bytes in the stream of all tensors' data.
    name: str
    start: int
    stop: int
    offset: int
    nbytes: int


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
    copy = _Copying(checkpoint)
    blocks = ahead(_blocks(plan), lambda block: (block.name, block.start, block.stop), checkpoint)
    with closing(fill(writer, copy, blocks, jobs=worker_count(jobs), near=copy.near)) as results:
        for size, counted in results:
            give_counted(checkpoint, counted)
            progress.advance(size)


@dataclass(frozen=True)
class _Copying:
    """Reads a block of a checkpoint, and returns with it what the checkpoint has counted."""

    checkpoint: Checkpoint
    _buffers: Buffers = field(default_factory=Buffers)

    def __call__(self, block: _Block, phase: int) -> tuple[npt.NDArray[Any], Any]:
        # Memory that is written begins where the disk can fetch it from.
        into = self._buffers.bytes("copied", block.nbytes, phase)
        values = self.checkpoint.read(block.name, block.start, block.stop, into)
        return values, counted_by(self.checkpoint, block.name, block.start, block.stop)

    def near(self, block: _Block) -> str:
        """The file that holds a block."""
        return place_of(self.checkpoint, block.name, block.start)


def _blocks(plan: OutputPlan) -> Iterator[_Block]:
    offset = 0
    for info in plan.tensors:
        for start, stop in blocks_of(info.numel):
            size = (stop - start) * info.item_bytes
            yield _Block(info.name, start, stop, offset, size)
            offset += size
