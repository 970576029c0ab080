"""Baselines: a mask to compare a mask with, streamed block by block or stored as an artifact."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import FINGERPRINT_BYTES, Digest
from maskreg.errors import UsageError
from maskreg.flow.baseline.choosing import Sweeper, chooser_for
from maskreg.flow.storing import add_span, artifact_space, finish_mask
from maskreg.mask import packed_bytes
from maskreg.mask.baseline import BaselineSpec
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.update.verified import RecordedSide, VerifiedSource
from maskreg.words import percent

BATCH_NUMEL = 1 << 28
"""Coordinates chosen together: enough for all threads, few enough for the page cache."""


class Block(NamedTuple):
    """A baseline's bits of coordinates ``[start, stop)`` of a tensor; of none for a tensor without a mask."""

    row: Tensor
    start: int
    stop: int
    packed: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BaselineResult:
    """A baseline, now in the registry's folder; and remarks, one sentence each."""

    digest: Digest
    notes: tuple[str, ...]


class Baseline:
    """A baseline of a mask, computed while it is streamed; nothing is stored, memory is bounded."""

    def __init__(
        self,
        artifact: Artifact,
        spec: BaselineSpec,
        source: Checkpoint | None = None,
        *,
        progress: Progress = SILENT,
        jobs: int | None = None,
    ) -> None:
        """Verify the source and check that there is such a baseline."""
        artifact.require("mask")
        threads = worker_count(jobs)
        if spec.kind.source and source is None:
            raise UsageError(f"{spec.kind.name} needs the source checkpoint", hint="add --source CKPT")
        verified = None
        if source is not None and spec.kind.source:
            verified = VerifiedSource(artifact, source, jobs=threads)
        self._rows = tuple(row for row in artifact.tensors if row.source_shape is not None)
        self._sweeper = Sweeper(artifact, verified, progress, threads)
        self._chooser = chooser_for(artifact, spec, self._sweeper)
        self._progress = progress

    @property
    def notes(self) -> tuple[str, ...]:
        """See the class."""
        return self._chooser.notes

    def blocks(self) -> Generator[Block, None, None]:
        """Every tensor of the source in the order of the table, in blocks; one empty block where there is no mask."""
        self._progress.start("draw", self._chooser.sweeps * 2 * sum(row.numel for row in self._rows))
        self._chooser.begin(self._rows)
        for batch in _batches(self._rows):
            choices = self._chooser.choose([row for row in batch if row.numel])
            with closing(self._sweeper.chosen(batch, choices)) as results:
                for span, packed in results:
                    yield Block(span.row, span.start, span.stop, packed)
        self._chooser.end()


def make_baseline(
    artifact: Artifact,
    spec: BaselineSpec,
    root: Path,
    source: Checkpoint | None = None,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> BaselineResult:
    """Compute a baseline of a mask and store it as an artifact of kind ``baseline``, without a target."""
    baseline = Baseline(artifact, spec, source, progress=progress, jobs=jobs)
    rows = artifact.tensors
    needed = sum(packed_bytes(row.numel) + 2 * FINGERPRINT_BYTES * row.leaves for row in rows)
    nnz, recorded = 0, RecordedSide(artifact)
    with (
        artifact_space(root, needed),
        ArtifactWriter(root, ["mask"], jobs=worker_count(jobs)) as writer,
        closing(baseline.blocks()) as blocks,
    ):
        for row, start, stop, packed in blocks:
            leaves = None if start else recorded.leaves(row.name)
            aliases = row.aliases if stop == row.numel else None
            nnz += add_span(writer, recorded.tensors[row.name], (start, stop), packed, leaves, aliases)
        manifest, recipe = artifact.manifest, spec.to_json()
        parents = (artifact.digest,)
        digest = finish_mask(writer, manifest.source, manifest.rule, kind="baseline", parents=parents, recipe=recipe)
    notes = baseline.notes
    if nnz != manifest.totals.nnz:
        density = percent(nnz / max(manifest.totals.numel, 1))
        notes += (f"its density is {density}, the mask has {percent(manifest.totals.density)}",)
    return BaselineResult(digest, notes)


def _batches(rows: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    room = BATCH_NUMEL
    for row in rows:
        if batch and row.numel > room:
            yield batch
            batch, room = [], BATCH_NUMEL
        batch.append(row)
        room -= row.numel
    if batch:
        yield batch
