"""Writing what links make of a checkpoint, with the files and the layout of that checkpoint."""

from __future__ import annotations

from pathlib import Path

from maskreg.checkpoint import Checkpoint, copy_tensors, plan_like, write_checkpoint
from maskreg.progress import SILENT, Progress


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

    with write_checkpoint(out, plan, force=force) as writer:
        copy_tensors(weights, plan, writer, progress=progress, jobs=jobs)
    return plan.total_bytes
