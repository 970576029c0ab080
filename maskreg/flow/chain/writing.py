"""Writing what links make of a checkpoint, with the files and the layout of that checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from maskreg.checkpoint import Checkpoint, plan_like, write_checkpoint
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.space import filling
from maskreg.tensors.blocks import blocks_of, numel_of


class _Task(NamedTuple):
    name: str
    start: int
    stop: int
    offset: int


def write_weights(
    weights: Checkpoint,
    layout: Checkpoint,
    out: Path,
    *,
    force: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> int:
    """Write weights as a checkpoint; the output appears at the end, whole, or not at all.

    Args:
        weights: what to write, such as what links make of a checkpoint.
        layout: the checkpoint whose files and shards the output gets: the one that the links apply to.
        out: path of the new checkpoint.
        force: replace an earlier output.
        progress: progress callback, in bytes of the result.
        jobs: threads; by default one per CPU, at most 16.

    Returns:
        Bytes of the weight files.

    Raises:
        WrongCheckpointError: ``layout`` is not what the first link applies to.
        CorruptError: a link is damaged.
        CannotCreateError: ``out`` exists, or cannot be written.
    """
    own, files = layout.small_files(), weights.small_files()
    added = {name: path.read_bytes() for name, path in files.items() if own.get(name) != path}
    plan = plan_like(layout, files=added, remove_files=own.keys() - files.keys())
    progress.start("follow", plan.total_bytes)

    def tasks() -> Iterator[_Task]:
        offset = 0
        for info in plan.tensors:
            for start, stop in blocks_of(info.numel):
                yield _Task(info.name, start, stop, offset)
                offset += (stop - start) * info.item_bytes

    with filling(out, plan.total_bytes, what="the checkpoint"), write_checkpoint(out, plan, force=force) as writer:

        def write(task: _Task) -> int:
            values = weights.read(task.name, task.start, task.stop)
            writer.write_at(task.offset, values)
            return values.nbytes

        with closing(ordered(write, tasks(), jobs=worker_count(jobs), size=numel_of)) as results:
            for written in results:
                progress.advance(written)
    return plan.total_bytes
