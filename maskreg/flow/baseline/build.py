"""Baselines: a mask to compare a mask with, streamed block by block or stored as an artifact."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.artifact.writer import ArtifactWriter, BlockRecord, Provenance
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import FINGERPRINT_BYTES, Digest
from maskreg.errors import UsageError
from maskreg.flow.baseline.drawing import DrawnChooser
from maskreg.flow.baseline.ranking import RankedChooser
from maskreg.flow.baseline.sweeping import Choices, Sweeper
from maskreg.flow.space import artifact_space
from maskreg.mask import nnz_of, packed_bytes
from maskreg.mask.baseline import BaselineSpec, complement
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.settings import Settings
from maskreg.update.verified import RecordedSide, VerifiedSource
from maskreg.words import percent

BATCH_NUMEL = 1 << 28
"""Coordinates chosen together: enough for all threads, few enough for the page cache."""


class Block(NamedTuple):
    """A baseline's bits of one span of a tensor.

    Attributes:
        row: the tensor, as the mask's artifact has it.
        start, stop: its coordinates; empty for a tensor without a mask.
        packed: uint8, padded bits.
    """

    row: Tensor
    start: int
    stop: int
    packed: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BaselineResult:
    """A finished baseline.

    Attributes:
        digest: the artifact, now in the registry's folder.
        notes: remarks, one sentence each.
    """

    digest: Digest
    notes: tuple[str, ...]


class Baseline:
    """A baseline of a mask, computed while it is streamed; nothing is stored, memory is bounded.

    Attributes:
        notes: remarks, one sentence each; complete at the end of :meth:`blocks`.
    """

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
    root: str | Path | None = None,
    source: Checkpoint | None = None,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> BaselineResult:
    """Compute a baseline of a mask and store it as an artifact of kind ``baseline``.

    Its source is the mask's. It has no target: where the format requires one, the source is repeated.
    """
    root = Settings.load().home if root is None else Path(root)
    baseline = Baseline(artifact, spec, source, progress=progress, jobs=jobs)
    rows = artifact.tensors
    needed = sum(packed_bytes(row.numel) + 2 * FINGERPRINT_BYTES * row.leaves for row in rows)
    nnz, recorded = 0, RecordedSide(artifact)
    with (
        artifact_space(root, needed),
        ArtifactWriter(root, ["mask"], jobs=worker_count(jobs)) as writer,
        closing(baseline.blocks()) as blocks,
    ):
        for block in blocks:
            nnz += _write(writer, recorded, block)
        manifest = artifact.manifest
        digest = writer.finish(
            Provenance(
                kind="baseline",
                rule=manifest.rule,
                exact=False,
                source=manifest.source,
                target=manifest.source,
                parents=(artifact.digest,),
                recipe=spec.to_json(),
            )
        )
    notes = baseline.notes
    if nnz != manifest.totals.nnz:
        density = percent(nnz / max(manifest.totals.numel, 1))
        notes += (f"its density is {density}, the mask has {percent(manifest.totals.density)}",)
    return BaselineResult(digest, notes)


def _write(writer: ArtifactWriter, source: RecordedSide, block: Block) -> int:
    row = block.row
    if block.start == 0:
        form = source.tensors[row.name]
        writer.begin(row.name, role=row.role, layer=row.layer, source=form, target=form)
        leaves = source.leaves(row.name)
        writer.add_leaves(leaves, leaves)
    nnz = nnz_of(block.packed)
    if block.stop:
        writer.add_block(BlockRecord(block.packed, numel=block.stop - block.start, nnz=nnz))
    if block.stop == row.numel:
        writer.end(row.aliases)
    return nnz


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


class Chooser(Protocol):
    """Makes the choices of one baseline, batch after batch of tensors."""

    sweeps: int
    """How often every tensor is swept, storing included."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the choices made so far, one sentence each."""

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Choose what depends on all tensors together."""

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""

    def end(self) -> None:
        """Check the choices, now that all tensors are done."""


class ComplementChooser:
    """Chooses every coordinate that the mask lacks."""

    sweeps = 1
    notes: tuple[str, ...] = ()

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Do nothing: tensors are independent."""

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The complement of each mask."""
        return {row.name: complement for row in rows}

    def end(self) -> None:
        """Do nothing: every mask has a complement."""


def chooser_for(artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> Chooser:
    """The chooser of a kind of baseline."""
    if spec.kind.name == "complement":
        return ComplementChooser()
    if spec.kind.name in ("low-magnitude", "principal", "safe"):
        return RankedChooser(artifact, spec, sweeper)
    return DrawnChooser(artifact, spec, sweeper)
