"""The overlap of masks, beside chance and beside what bf16 rounding alone would give two updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from maskreg.analysis.comparison import Comparison
from maskreg.analysis.grid import Grid, shape_of
from maskreg.analysis.verdict import SMALLEST, Start
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, GROUPS, Selection
from maskreg.engine import ordered
from maskreg.errors import NotFoundError
from maskreg.flow.overlap.counting import SpanCounter, SpanCounts, spans_of
from maskreg.flow.overlap.reading import SharedSpan, SpanReader, operands_of
from maskreg.flow.overlap.relations import Ancestry
from maskreg.flow.overlap.totals import OverlapTotals
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import numel_of

MOST_WITH_GROUPS = 8
"""Masks whose pairs all have figures of every role, layer, module and tensor: 28 pairs."""

_WAITING = 2
"""Spans that wait besides those that are counted."""


def measure_overlap(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    names: Sequence[str] = (),
    allow_different: bool = False,
    require_source: bool = False,
    stripes: bool = False,
    smallest: float = SMALLEST,
    start: Start | Sequence[Start] = "unknown",
    by: Sequence[str] = (),
    selection: Selection = ALL,
    ancestries: Sequence[Ancestry] = (),
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Comparison:
    """Measure what masks share, in memory that does not grow with the model.

    Every mask is read once for a tensor whose bits fit into memory, and the pairs are counted from them tile by tile.
    However many masks there are, no more of them is in memory than ``MASKS_BYTES`` of verified parts, and the bits of a
    tensor; but every pair keeps its figures.

    The source must be the checkpoint that the masks were made from. Masks of different checkpoints can share some
    tensors, bit for bit (a vision tower, say). The figures then cover the shared tensors, and any checkpoint that has
    these is accepted, whatever else it holds.
    """
    threads = worker_count(jobs)
    operands = operands_of(artifacts, source, allow_different=allow_different, selection=selection, jobs=threads)
    scope, verified, missing = operands
    if missing and require_source:
        raise NotFoundError(missing)
    counter = SpanCounter(artifacts, verified, stripes, SpanReader(artifacts, verified, scope))

    def spans() -> Iterator[SharedSpan]:
        return spans_of(scope, verified is not None, threads + _WAITING)

    progress.start("compare", sum(counter.nbytes(span) for span in spans()))
    labels = names or [artifact.digest.short for artifact in artifacts]
    kept = tuple(GROUPS) if len(artifacts) <= MOST_WITH_GROUPS else by
    by_class = verified is not None
    totals = OverlapTotals(
        artifacts, labels, by_class=by_class, stripes=stripes, by=kept, ancestries=ancestries, jobs=threads
    )
    for counts, grids in _tile_counts(counter, spans(), progress, threads):
        totals.add(counts, grids)
    starts = [start] * len(artifacts) if isinstance(start, str) else start
    return totals.comparison(operands.notes, smallest, starts)


def _tile_counts(
    counter: SpanCounter, spans: Iterator[SharedSpan], progress: Progress, jobs: int
) -> Iterator[tuple[SpanCounts, tuple[Grid, ...]]]:
    """The counts of every tensor by tile: its spans, added up."""
    tile: SpanCounts | None = None
    grids: tuple[Grid, ...] = ()
    with closing(ordered(counter, spans, jobs=jobs, in_flight=jobs + _WAITING, size=numel_of)) as results:
        for counts in results:
            span = counts.span
            progress.advance(counter.nbytes(span))
            if tile is None and (shape := shape_of(span.rows[0].source_shape or ())) is not None:
                grids = tuple(Grid(shape) for _ in counts.grids)
            for grid, part in zip(grids, counts.grids, strict=True):
                grid.add(part)
            tile = counts if tile is None else tile + counts
            if span.ends_tile:
                yield tile, grids
                tile, grids = None, ()
            if span.ends_tensor:
                counter.reader.forget(span.rows[0].name)
