"""Weights that are held in memory to tell what changes next, and the root of any checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from maskreg.bucket import Location
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import same_content
from maskreg.digest import FINGERPRINT_BYTES, fingerprint, fingerprint_root, leaf_hashes
from maskreg.parallel import ordered, worker_count
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import TensorInfo, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from maskreg.checkpoint.base import Memory


class Snapshot(Checkpoint):
    """A checkpoint in memory, which takes as much as its tensors, and its small files in a temporary folder.

    What training publishes next is coded against it, so the run need not keep what it published last on a disk.
    """

    def __init__(self, checkpoint: Checkpoint, *, jobs: int | None = None) -> None:
        """Read a checkpoint whole.

        Args:
            checkpoint: what to hold.
            jobs: threads.
        """
        self.format, self.path, self.hub = checkpoint.format, checkpoint.path, checkpoint.hub
        self.tensors: Mapping[str, TensorInfo] = dict(checkpoint.tensors)
        self._folder = Path(mkdtemp(prefix="maskreg-"))
        self._remove_files = finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._other_weights = checkpoint.other_weights()
        self._values = {name: np.empty(info.numel, f"<u{info.item_bytes}") for name, info in self.tensors.items()}
        self.take(checkpoint, jobs=jobs)

    def take(self, checkpoint: Checkpoint, *, jobs: int | None = None) -> None:
        """Replace all values, and the small files, by those of a checkpoint; wider values are cast to bf16.

        Block by block, so the checkpoint may be one that is computed from this one.
        """

        def copy(span: _Span) -> None:
            name, start, stop = span
            info, values = checkpoint.tensors[name], checkpoint.read(name, start, stop)
            cast = values if info.dtype == self.tensors[name].dtype else to_bf16(values, info.dtype)
            self._values[name][start:stop] = cast

        spans = ahead(_spans(self), lambda span: span, checkpoint)
        for _ in ordered(copy, spans, jobs=worker_count(jobs), size=lambda span: span[2] - span[1]):
            pass
        self._take_files(checkpoint.small_files())

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> npt.NDArray[Any]:
        """Elements of a tensor, as they lie in memory."""
        if not 0 <= start <= stop <= self.tensors[name].numel:
            raise ValueError(f"{name}: elements {start} to {stop} of {self.tensors[name].numel}")
        return self._values[name][start:stop]

    def small_files(self) -> Mapping[str, Location]:
        """Those of the checkpoint that was taken last, as they were."""
        return dict(self._held())

    def other_weights(self) -> tuple[str, ...]:
        """Those of the checkpoint that was read."""
        return self._other_weights

    def close(self) -> None:
        """Remove the small files; memory is freed with the object."""
        self._remove_files()

    def _held(self) -> dict[str, Path]:
        return {path.name: path for path in self._folder.iterdir()}

    def _take_files(self, files: Mapping[str, Location]) -> None:
        # Copies, since a run may delete its checkpoints.
        held = self._held()
        for name in held.keys() - files.keys():
            held[name].unlink()
        for name, path in files.items():
            if name not in held or (path != held[name] and not same_content(path, held[name])):
                (self._folder / name).write_bytes(path.read_bytes())


def root_of(checkpoint: Checkpoint, *, jobs: int | None = None) -> str:
    """The identity of a checkpoint; reads all of it.

    Args:
        checkpoint: what to hash.
        jobs: threads.
    """
    leaves: dict[str, list[npt.NDArray[np.uint8]]] = {name: [] for name in checkpoint.tensors}

    def hashed(span: _Span) -> tuple[str, npt.NDArray[np.uint8]]:
        return span[0], leaf_hashes(checkpoint.read(*span))

    spans = ahead(_spans(checkpoint), lambda span: span, checkpoint)
    for name, hashes in ordered(hashed, spans, jobs=worker_count(jobs), size=lambda span: span[2] - span[1]):
        leaves[name].append(hashes)
    empty = np.empty((0, FINGERPRINT_BYTES), np.uint8)
    return fingerprint_root(
        (name, info.dtype, info.shape, fingerprint(np.concatenate([empty, *leaves[name]])))
        for name, info in checkpoint.tensors.items()
    )


_Span = tuple[str, int, int]


def _spans(checkpoint: Checkpoint) -> Iterator[_Span]:
    for name, info in checkpoint.tensors.items():
        for start, stop in blocks_of(info.numel):
            yield name, start, stop
