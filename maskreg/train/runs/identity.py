"""Identity of a checkpoint: the root that artifacts record."""

from __future__ import annotations

from contextlib import closing

from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import fingerprint, fingerprint_root, leaf_hashes
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.info import TensorInfo


def root_of(checkpoint: Checkpoint, *, progress: Progress = SILENT, jobs: int | None = None) -> str:
    """Identity of a checkpoint: sha256 over the name, dtype, shape and fingerprint of every tensor.

    Args:
        checkpoint: read once, in order.
        progress: progress callback, in bytes.
        jobs: threads; by default one per core.

    Returns:
        ``sha256:`` and 64 hex digits, the ``root`` of :class:`maskreg.artifact.manifest.Side`.
    """
    import numpy as np

    tensors = list(checkpoint.tensors.values())
    tasks = ((info, start, stop) for info in tensors for start, stop in list(blocks_of(info.numel)) or [(0, 0)])
    leaves: dict[str, list[np.ndarray]] = {}

    def work(task: tuple[TensorInfo, int, int]) -> tuple[TensorInfo, int, np.ndarray]:
        info, start, stop = task
        return info, (stop - start) * info.item_bytes, leaf_hashes(checkpoint.read(info.name, start, stop))

    progress.start("identify", sum(info.nbytes for info in tensors))
    with closing(ordered(work, tasks, jobs=worker_count(jobs), size=lambda task: task[2] - task[1])) as results:
        for info, size, hashes in results:
            leaves.setdefault(info.name, []).append(hashes)
            progress.advance(size)
    return fingerprint_root(
        (info.name, info.dtype, info.shape, fingerprint(np.concatenate(leaves[info.name]))) for info in tensors
    )
