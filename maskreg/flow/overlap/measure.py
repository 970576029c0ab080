"""The overlap of masks, beside chance and beside what bf16 rounding alone would give two updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from maskreg.analysis.comparison import Comparison
from maskreg.analysis.contingency import MAX_MASKS
from maskreg.analysis.evidence import NO_SOURCE
from maskreg.analysis.grid import Grid, shape_of
from maskreg.analysis.verdict import SMALLEST, Start
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import Scope, scope_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import NotFoundError, UsageError
from maskreg.flow.overlap.counting import SpanCounter, SpanCounts, spans_of
from maskreg.flow.overlap.totals import OverlapTotals
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.blocks import numel_of
from maskreg.update.verified import VerifiedSource

MOST_WITH_LINES = 3
"""Masks of which every pair is counted by row and column too: each pair needs as much memory as the largest matrix has
rows and columns."""


def measure_overlap(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    names: Sequence[str] = (),
    allow_different: bool = False,
    require_source: bool = False,
    stripes: bool = False,
    smallest: float = SMALLEST,
    start: Start = "unknown",
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Comparison:
    """Measure what masks share, streaming: memory grows neither with the model nor with a tensor.

    The source must be the checkpoint that the masks were made from. Masks of different checkpoints can share some
    tensors, bit for bit (a vision tower, say). The figures then cover the shared tensors, and any checkpoint that has
    these is accepted, whatever else it holds.

    Args:
        artifacts: 2 to 255 masks.
        source: verified while it is read; None leaves out the figures that need it.
        names: names of the masks; short digests when left out.
        allow_different: restrict the comparison to shared tensors, instead of refusing.
        require_source: raise where figures would be left out for lack of a common source.
        stripes: count rows and columns of every mask too.
        smallest: the smallest headroom that matters to a verdict.
        start: whether the source is what training started from, bit for bit.
        progress: progress callback, in bytes of masks and source.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        UsageError: fewer than two masks, or more than 255.
        PairMismatchError: their rules, tensors or sources differ.
        PartAbsentError: the mask part of one is absent.
        NotFoundError: the source is required and was not given.
        WrongCheckpointError: ``source`` is not the checkpoint that the masks were made from.
        DataError: an artifact is damaged.
    """
    if not 2 <= len(artifacts) <= MAX_MASKS:
        raise UsageError(f"2 to {MAX_MASKS} masks can be compared, not {len(artifacts)}")
    threads = worker_count(jobs)
    scope = scope_of(artifacts, allow_different=allow_different)
    verified, missing = _verified(artifacts, scope, source, threads)
    if missing and require_source:
        raise NotFoundError(missing)
    for artifact, row in zip(artifacts, scope.rows[0], strict=True):
        artifact.require("mask")
        artifact.mask_bits(row, 0, 0)  # opens the array once, before threads need it
    lines = len(artifacts) <= MOST_WITH_LINES
    counter = SpanCounter(artifacts, verified, stripes, lines)
    progress.start("compare", sum(counter.nbytes(span) for span in spans_of(scope, verified is not None)))
    labels = names or [artifact.digest.short for artifact in artifacts]
    totals = OverlapTotals(artifacts, labels, by_class=verified is not None, stripes=stripes, lines=lines)
    for counts, grids in _tensor_counts(counter, scope, progress, threads):
        totals.add(counts, grids)
    return totals.comparison([*scope.notes, *([missing] if missing else [])], smallest, start)


def _tensor_counts(
    counter: SpanCounter, scope: Scope, progress: Progress, jobs: int
) -> Iterator[tuple[SpanCounts, tuple[Grid, ...]]]:
    """The counts of every tensor: those of its spans, added up."""
    tensor: SpanCounts | None = None
    grids: tuple[Grid, ...] = ()
    spans = spans_of(scope, counter.source is not None)
    with closing(ordered(counter, spans, jobs=jobs, size=numel_of)) as results:
        for counts in results:
            progress.advance(counter.nbytes(counts.span))
            if tensor is None and (shape := shape_of(counts.span.rows[0].source_shape or ())) is not None:
                grids = tuple(Grid(shape) for _ in counts.grids)
            for grid, part in zip(grids, counts.grids, strict=True):
                grid.add(part)
            tensor = counts if tensor is None else tensor + counts
            if counts.span.is_last:
                yield tensor, grids
                tensor, grids = None, ()


def _verified(
    artifacts: Sequence[Artifact], scope: Scope, source: Checkpoint | None, jobs: int
) -> tuple[VerifiedSource | None, str]:
    """The source, when it is that of all masks; else why the figures that need it are left out."""
    if source is not None and scope.one_source:
        one_checkpoint = len({artifact.manifest.source.root for artifact in artifacts}) == 1
        only = None if one_checkpoint else [rows[0].name for rows in scope.rows]
        return VerifiedSource(artifacts[0], source, only=only, jobs=jobs), ""
    why = f"{NO_SOURCE}: name it with --source" if scope.one_source else "the masks have no common source"
    return None, f"figures by exponent and the rounding null are left out: {why}"
