"""A survey of many masks: every mask read once, and all pairs of a span counted together on packed bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from maskreg.analysis.contingency import IN_A, IN_B, Cells, count_classes, count_pairs
from maskreg.analysis.evidence import MATCHED, PER_TENSOR
from maskreg.analysis.survey import Survey, expected_by_class
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Selection
from maskreg.digest import LEAF_NUMEL
from maskreg.engine import ordered
from maskreg.flow.overlap.reading import SharedSpan, SpanReader, Tile, operands_of
from maskreg.parallel import worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import numel_of

SPAN_BYTES = 1 << 25
"""Memory for the bits of all masks in a span, and for the source's codes; a span has at least one leaf."""

MOST_MASKS = 1000
"""Masks in a survey: half a million pairs."""

_WAITING = 2
"""Spans that wait besides those that are counted."""

_ALL = Tile(0, 1, ())
"""One tile of all masks: a survey counts its pairs itself."""


@dataclass(frozen=True, eq=False)
class _Counts:
    """Counts of a span.

    Attributes:
        span: which one.
        both: int64 ``[masks, masks]``, see :func:`~maskreg.analysis.contingency.count_pairs`.
        sizes: int64 ``[masks, classes]``, coordinates of each mask by class; of one class without the source.
        members: int64 ``[classes]``, all coordinates.
    """

    span: SharedSpan
    both: Cells
    sizes: Cells
    members: Cells


@dataclass(frozen=True)
class _Counter:
    """Counts spans. Safe to call from many threads."""

    reader: SpanReader

    def __call__(self, span: SharedSpan) -> _Counts:
        """Count one span."""
        masks, codes = list(self.reader.bits(span).values()), self.reader.codes(span)
        both = count_pairs(masks)
        if codes is None:
            return _Counts(span, both, np.diagonal(both)[:, None], np.array([span.stop - span.start]))
        # Counting two masks by class takes no longer than counting one.
        tables = [count_classes(masks[at], masks[min(at + 1, len(masks) - 1)], codes) for at in range(0, len(masks), 2)]
        sizes = [(table @ inside).astype(np.int64) for table in tables for inside in (IN_A, IN_B)]
        return _Counts(span, both, np.stack(sizes[: len(masks)]), tables[0].sum(1))


def survey_overlaps(
    artifacts: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    names: Sequence[str] = (),
    allow_different: bool = False,
    selection: Selection = ALL,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Survey:
    """Count what every two of many masks share, and what chance gives; no intervals, and no answers.

    Every mask is read once. Memory grows neither with the model nor with the number of masks, but for two numbers of
    every pair: ``SPAN_BYTES`` for each thread, and ``MASKS_BYTES`` for verified parts of all masks.
    """
    threads = worker_count(jobs)
    operands = operands_of(
        artifacts, source, allow_different=allow_different, selection=selection, jobs=threads, most=MOST_MASKS
    )
    scope, verified, _ = operands
    per_coordinate = len(artifacts) / 8 + (2 if verified else 0)
    length = max(1, int(SPAN_BYTES / per_coordinate) // LEAF_NUMEL) * LEAF_NUMEL

    def spans() -> Iterator[SharedSpan]:
        for rows in scope.rows:
            for start in range(0, rows[0].numel, length):
                yield SharedSpan(rows, start, min(start + length, rows[0].numel), _ALL)

    progress.start("survey", int(scope.numel * per_coordinate))
    both = np.zeros((len(artifacts), len(artifacts)), np.int64)
    expected = np.zeros(both.shape)
    sizes = members = np.zeros(1, np.int64)
    counter = _Counter(SpanReader(artifacts, verified, scope))
    with closing(ordered(counter, spans(), jobs=threads, in_flight=threads + _WAITING, size=numel_of)) as results:
        for counts in results:
            both += counts.both
            first = not counts.span.start
            sizes = counts.sizes if first else sizes + counts.sizes
            members = counts.members if first else members + counts.members
            if counts.span.ends_tensor:
                expected += expected_by_class(sizes, members)
            progress.advance(int(numel_of(counts.span) * per_coordinate))
    return Survey(
        tuple(names) or tuple(artifact.digest.short for artifact in artifacts),
        scope.numel,
        both,
        expected,
        MATCHED if verified else PER_TENSOR,
        operands.notes,
    )
