"""Chains of links: what several links give one after another, computed as it is read, held in memory, or written.

A block goes through all links before the next one is read, so nothing that lies between is ever written::

    read -> leaves right? -> decode link 1 -> leaves right? -> decode link 2 -> leaves right? -> the result

The first check is against what link 1 records of its source. Where two links meet, the roots are equal, so the check
after the one is the check before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import FILES, REVERSE_FILES, artifact_prefix
from maskreg.artifact.reader import Artifact
from maskreg.bucket import Location
from maskreg.checkpoint.ahead import ahead
from maskreg.checkpoint.base import Checkpoint, Memory
from maskreg.checkpoint.files import can_run_code
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import copy_tensors, write_checkpoint
from maskreg.digest import FINGERPRINT_BYTES, fingerprint, fingerprint_root, leaf_hashes
from maskreg.flow.storing import from_blocks
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import TensorInfo, blocks_of
from maskreg.update.delta import Delta
from maskreg.update.route import Route
from maskreg.update.verified import VerifiedSource

Bits = npt.NDArray[Any]

_TENSORS = 64
"""Tensors whose spans are kept at hand; work goes through them in order."""

_REMOVED = Path()


class Chained(Checkpoint):
    """What links make of a checkpoint. Safe to read from several threads; closing it leaves the checkpoint open."""

    blockwise = True

    def __init__(
        self,
        source: Checkpoint,
        artifacts: Sequence[tuple[Artifact, bool]],
        *,
        with_code: bool = False,
        jobs: int | None = None,
    ) -> None:
        """Check that the links follow one another, and that the checkpoint is what the first applies to."""
        route = Route([Delta(artifact, revert=revert) for artifact, revert in artifacts])
        self._deltas = route.deltas
        first = self._deltas[0]
        self._source = VerifiedSource(first.artifact, source, side=first.before.name, jobs=worker_count(jobs))
        self._buffers = Buffers(), Buffers()
        self._with_code = with_code
        last = self._deltas[-1].after.tensors
        self.format, self.path, self.hub = source.format, source.path, ""
        self.tensors: Mapping[str, TensorInfo] = {name: last[name] for name in source.tensors}
        self._spans = lru_cache(_TENSORS)(lambda name: [*route[name].spans()])

    def read(self, name: str, start: int, stop: int, into: Memory | None = None) -> Bits:
        """Elements of a tensor; every block that they lie in is checked and decoded whole."""
        return from_blocks(self.tensors[name], start, stop, into, partial(self._block, name))

    def expect(self, name: str, start: int, stop: int) -> int:
        """Hand on what is read soon."""
        return self._source.checkpoint.expect(name, start, stop)

    def small_files(self) -> Mapping[str, Location]:
        """The source's small files, and over them the links' own, as they lie in the registry."""
        return {name: path for name, path in self._files.items() if path != _REMOVED}

    @cached_property
    def _files(self) -> Mapping[str, Location]:
        files = dict(self._source.checkpoint.small_files())
        for delta in self._deltas:
            brought = delta.artifact.files(delta.part)
            if delta.revert:
                files.update(dict.fromkeys(delta.artifact.files("delta").keys() - brought.keys(), _REMOVED))
            for name, data in brought.items():
                known = files[name].read_bytes() if files.get(name, _REMOVED) != _REMOVED else None
                if self._with_code or not can_run_code(name, data, known):
                    files[name] = _path(delta, name)
        return files

    def other_weights(self) -> tuple[str, ...]:
        """What lies beside the source."""
        return self._source.checkpoint.other_weights()

    def close(self) -> None:
        """Do nothing: the source belongs to its opener."""

    def _block(self, name: str, number: int) -> Bits:
        span = self._spans(name)[number]
        size = (span.stop - span.start) * self._source.recorded.tensors[name].item_bytes
        values = self._source.read(name, span.start, span.stop, self._buffers[1].bytes("source", size))
        for turn, (delta, step) in enumerate(zip(self._deltas, span.steps, strict=True)):
            # In turns, since what is decoded must not lie over what it is decoded from.
            values = step.result(values, delta.codec.decode, self._buffers[turn % 2])
        return values


def _path(delta: Delta, name: str) -> Path:
    artifact = delta.artifact
    assert artifact.store.files is not None  # links are brought into the local registry before they are used
    prefix = REVERSE_FILES if delta.revert else FILES
    return artifact.store.files.path(artifact_prefix(artifact.digest) + prefix + name)


def write_weights(weights: Checkpoint, layout: Checkpoint, out: Path, progress: Progress = SILENT) -> None:
    """Write weights as a checkpoint, in place of one that is there; it appears at the end, whole, or not at all."""
    own, files = layout.small_files(), weights.small_files()
    added = {name: path.read_bytes() for name, path in files.items() if own.get(name) != path}
    plan = plan_like(layout, files=added, remove_files=own.keys() - files.keys())
    progress.start("follow", plan.total_bytes)
    with write_checkpoint(out, plan, force=True) as writer:
        copy_tensors(weights, plan, writer, progress=progress)


def root_of(checkpoint: Checkpoint, *, jobs: int | None = None) -> str:
    """The identity of a checkpoint; reads all of it."""
    leaves: dict[str, list[npt.NDArray[np.uint8]]] = {name: [] for name in checkpoint.tensors}

    def hashed(span: tuple[str, int, int]) -> tuple[str, npt.NDArray[np.uint8]]:
        return span[0], leaf_hashes(checkpoint.read(*span))

    tensors = checkpoint.tensors.items()
    every = ((name, start, stop) for name, info in tensors for start, stop in blocks_of(info.numel))
    spans = ahead(every, lambda span: span, checkpoint)
    for name, hashes in ordered(hashed, spans, jobs=worker_count(jobs), size=lambda span: span[2] - span[1]):
        leaves[name].append(hashes)
    empty = np.empty((0, FINGERPRINT_BYTES), np.uint8)
    return fingerprint_root(
        (name, info.dtype, info.shape, fingerprint(np.concatenate([empty, *leaves[name]]))) for name, info in tensors
    )
