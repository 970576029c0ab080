"""Checkpoints of a run in one folder, each complete and named by the digits of its root."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import Digest
from maskreg.disk import preload
from maskreg.flow.chain import Chained, write_weights
from maskreg.progress import SILENT, Progress

_NAME = re.compile(r"[0-9a-f]{64}")


class Versions:
    """The checkpoints in a folder. Other files in it are left alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, root: str) -> Path:
        """Where the checkpoint with this identity is, or would be."""
        return self.folder / Digest(root).hex

    def roots(self) -> list[str]:
        """The identities that the names say, the latest first."""
        paths = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
        return [f"sha256:{path.name}" for path in sorted(paths, key=lambda path: -path.stat().st_mtime_ns)]

    def open(self, root: str) -> Checkpoint:
        """Open a checkpoint, which may have been changed since it was written.

        Raises:
            DataError: it cannot be read.
            NotFoundError: it is not there.
        """
        return open_checkpoint(self.path(root))

    def make(
        self,
        root: str,
        base: Checkpoint,
        artifacts: Sequence[tuple[Artifact, bool]],
        *,
        with_code: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        """Write what artifacts in order, each with whether it is reverted, make of a checkpoint: whole, or not at all.

        Raises:
            WrongCheckpointError: the checkpoint is not what the first of them applies to.
            CorruptError: an artifact is damaged.
        """
        weights = Chained(base, artifacts, with_code=with_code) if artifacts else base
        write_weights(weights, base, self.path(root), force=True, progress=progress)
        for path in self.path(root).glob("*.safetensors"):
            preload(path)  # a reader is going to load it

    def prune(self, root: str, keep: int) -> None:
        """Delete all but this checkpoint and the latest others, ``keep`` in all; open files can be read on."""
        for other in [other for other in self.roots() if other != root][keep - 1 :]:
            shutil.rmtree(self.path(other), ignore_errors=True)
