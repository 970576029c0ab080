"""Baselines: a mask to compare a mask with, stored as an artifact."""

from __future__ import annotations

from contextlib import closing
from operator import attrgetter
from pathlib import Path

from maskreg.artifact.reader import Artifact
from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint.base import Checkpoint
from maskreg.digest import FINGERPRINT_BYTES
from maskreg.errors import UsageError
from maskreg.flow.baseline.choosing import Sweeper, chooser_for
from maskreg.flow.extract.extraction import ExtractResult
from maskreg.flow.storing import add_span, artifact_space
from maskreg.mask import packed_bytes
from maskreg.mask.baseline import BaselineSpec
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import batches
from maskreg.update.verified import RecordedSide, VerifiedSource
from maskreg.words import percent

BATCH_NUMEL = 1 << 28
"""Coordinates chosen together: enough for all threads, few enough for the page cache."""


def make_baseline(
    artifact: Artifact,
    spec: BaselineSpec,
    root: Path,
    source: Checkpoint | None = None,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ExtractResult:
    """Compute a baseline of a mask, in bounded memory, and store it as an artifact of kind ``baseline``."""
    artifact.require("mask")
    threads, verified = worker_count(jobs), None
    if spec.kind.source:
        if source is None:
            raise UsageError(f"{spec.kind.name} needs the source checkpoint", options={"source": None})
        verified = VerifiedSource(artifact, source, jobs=threads)
    sweeper = Sweeper(artifact, verified, progress, threads)
    chooser = chooser_for(artifact, spec, sweeper)
    rows = tuple(row for row in artifact.tensors if row.source_shape is not None)
    needed = sum(packed_bytes(row.numel) + 2 * FINGERPRINT_BYTES * row.leaves for row in artifact.tensors)
    progress.start("draw", chooser.sweeps * 2 * sum(row.numel for row in rows))
    nnz, recorded, manifest = 0, RecordedSide(artifact), artifact.manifest
    with artifact_space(root, needed), ArtifactWriter(root, ["mask"], jobs=threads) as writer:
        chooser.begin(rows)
        for batch in batches(rows, BATCH_NUMEL, attrgetter("numel")):
            choices = chooser.choose([row for row in batch if row.numel])
            with closing(sweeper.chosen(batch, choices)) as results:
                for (row, start, stop, *_), packed in results:
                    leaves = None if start else recorded.leaves(row.name)
                    aliases = row.aliases if stop == row.numel else None
                    nnz += add_span(writer, recorded.tensors[row.name], (start, stop), packed, leaves, aliases)
        chooser.end()
        digest = writer.finish(
            kind="baseline",
            rule=manifest.rule,
            source=manifest.source,
            parents=(artifact.digest,),
            recipe=spec.to_json(),
        )
    notes = chooser.notes
    if nnz != manifest.totals.nnz:
        density = percent(nnz / max(manifest.totals.numel, 1))
        notes += (f"its density is {density}, the mask has {percent(manifest.totals.density)}",)
    return ExtractResult(digest, notes)
