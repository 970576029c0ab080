"""The overlap of masks, beside chance and beside what bf16 rounding alone would give two updates.

Counts of tensors (:mod:`maskreg.flow.overlap.counting`) add up to the figures of roles, layers and the whole. Beside
them stands why two masks are alike for another reason than training: one is, holds, or was made from the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import numpy as np

from maskreg.analysis.chance import Floats
from maskreg.analysis.comparison import (
    Comparison,
    Consensus,
    PairOverlap,
    Stripes,
    independent,
    intersections_of,
    matrix_of,
    stripes_of,
)
from maskreg.analysis.contingency import IN_A, IN_B, MOST_CROSSED, Cells
from maskreg.analysis.evidence import (
    NO_SOURCE,
    ROUNDING,
    ROUNDING_A,
    ROUNDING_B,
    OverlapFigures,
    OverlapSums,
    figures_of,
    sums_from_classes,
    sums_from_counts,
)
from maskreg.analysis.grid import Grid, shape_of
from maskreg.analysis.margins import Beyond, beyond, margins_of
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import SMALLEST, Asked, Start, start_of_pair
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, GROUPS, Selection, module_of, shared_of, stream_of
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotFoundError, UsageError
from maskreg.flow.overlap.counting import SharedSpan, SpanCounter, SpanCounts, SpanReader, operands_of, spans_of
from maskreg.mask.rounding import fit_flips, hidden_flips, off_grid
from maskreg.parallel import BATCH_NUMEL, ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card
from maskreg.tensors.info import numel_of

MOST_WITH_GROUPS = 8
"""Masks whose pairs all have figures of every role, layer, module and tensor: 28 pairs."""

T = TypeVar("T")
R = TypeVar("R")

_WAITING = 2
"""Spans that wait besides those that are counted."""


@dataclass(frozen=True)
class OverlapSpec:
    """Which tensors and figures a comparison covers; fields as in ``CompareOptions``."""

    selection: Selection = ALL
    allow_different: bool = False
    require_source: bool = False
    stripes: bool = False
    smallest_effect: float = SMALLEST
    by: str | None = None
    groups: Collection[str] | None = None

    def __post_init__(self) -> None:
        if self.by not in (None, *GROUPS):
            raise UsageError(f"by is {self.by!r}", hint=f"give one of {', '.join(GROUPS)}")
        if not 0 <= self.smallest_effect < 1:
            fault = f"the smallest effect that matters is {self.smallest_effect}"
            raise UsageError(fault, hint="give a share, such as 0.01")


WHOLE = OverlapSpec()
"""All tensors, of masks that belong together."""


@dataclass(frozen=True)
class NamedMask:
    """A mask that is compared.

    Attributes:
        start: whether training started at its source, bit for bit.
        given_ancestry: what it was made from; None for its parents alone.
    """

    name: str
    artifact: Artifact
    card: Card = field(default_factory=Card)
    start: Start = "unknown"
    given_ancestry: Ancestry | None = None

    @cached_property
    def ancestry(self) -> Ancestry:
        """What it was made from, as far as that is known."""
        return self.given_ancestry or Ancestry.of_parents(self.artifact)


def measure_overlap(
    masks: Sequence[NamedMask],
    source: Checkpoint | None = None,
    spec: OverlapSpec = WHOLE,
    *,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Comparison:
    """Measure what masks share, in memory that does not grow with the model.

    Every mask is read once for a tensor whose bits fit into memory, and the pairs are counted from them tile by tile.
    However many masks there are, no more of them is in memory than ``MASKS_BYTES`` of verified parts, and of a tensor
    the bits and the chances of points; but every pair keeps its figures.

    The source must be the checkpoint that the masks were made from. Masks of different checkpoints can share some
    tensors, bit for bit (a vision tower, say). The figures then cover the shared tensors, and any checkpoint that has
    these is accepted, with or without others.
    """
    threads, artifacts = worker_count(jobs), [mask.artifact for mask in masks]
    operands = operands_of(
        artifacts, source, allow_different=spec.allow_different, selection=spec.selection, jobs=threads
    )
    scope, verified, missing = operands
    if missing and spec.require_source:
        raise NotFoundError(missing)
    counter = SpanCounter(SpanReader(artifacts, verified, scope), spec.stripes)

    def spans() -> Iterator[SharedSpan]:
        return spans_of(scope, verified is not None, threads + _WAITING)

    progress.start("compare", sum(counter.nbytes(span) for span in spans()))
    totals = _Totals(masks, spec, by_class=verified is not None, jobs=threads)
    for counts, grids in _tile_counts(counter, spans(), progress, threads):
        totals.add(counts, grids)
    return totals.comparison(operands.notes)


def _tile_counts(
    counter: SpanCounter, spans: Iterator[SharedSpan], progress: Progress, jobs: int
) -> Iterator[tuple[SpanCounts, tuple[Grid, ...]]]:
    """The counts of every tensor by tile: its spans, added up."""
    tile: SpanCounts | None = None
    grids: tuple[Grid, ...] = ()
    with closing(ordered(counter, spans, jobs=jobs, in_flight=jobs + _WAITING, size=_work_of)) as results:
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


def _work_of(span: SharedSpan) -> int:
    """Coordinates to count, once for each pair: the more pairs, the fewer tensors wait."""
    return numel_of(span) * len(span.tile.pairs)


class _Totals:
    """Adds up tensors to roles, layers and the whole, for every pair of masks."""

    def __init__(self, masks: Sequence[NamedMask], spec: OverlapSpec, *, by_class: bool, jobs: int) -> None:
        artifacts = [mask.artifact for mask in masks]
        self._masks, self._spec, self._by_class, self._jobs = masks, spec, by_class, jobs
        usual = tuple(GROUPS) if len(masks) <= MOST_WITH_GROUPS else (spec.by,) if spec.by else ()
        self._by = usual if spec.groups is None else tuple(spec.groups)
        self._stream = stream_of((t.name, t.layer, t.role, t.source_shape or ()) for t in artifacts[0].tensors)
        self._pairs = {pair: _Sums(self._by) for pair in combinations(range(len(artifacts)), 2)}
        # Of the tensor that is added: what all tiles know of each mask.
        self._flips: dict[int, Floats | str] = {}
        self._beyond: dict[int, Beyond] = {}
        self._no_flips = [hidden_flips(artifact.manifest.rule) for artifact in artifacts]
        self._which = len(artifacts) <= MOST_CROSSED
        kinds = 1 << len(artifacts) if self._which else len(artifacts) + 1
        self._observed, self._independent = np.zeros(kinds, np.int64), np.zeros(kinds)
        self._stripes: list[dict[str, Stripes]] = [{} for _ in artifacts] if spec.stripes else []

    def add(self, counts: SpanCounts, grids: Sequence[Grid]) -> None:
        """Add a tensor, or a tile of its pairs."""
        rows, pairs = counts.span.rows, counts.span.tile.pairs
        row = rows[0]
        shared = shared_of(row.name, row.layer, row.role, row.source_shape or (), self._stream)
        self._fit(counts, grids)

        def sums_of(pair: tuple[tuple[int, int], Cells, Grid | None]) -> OverlapSums:
            (a, b), cells, grid = pair
            neither, only_a, only_b, both = (int(count) for count in cells.sum(0))
            _check(rows[a], only_a + both)
            _check(rows[b], only_b + both)
            lines = (grid, margins_of(grids[0], self._beyond[a], self._beyond[b])) if grid else None
            if self._by_class:
                return sums_from_classes(cells, self._flips[a], self._flips[b], lines, shared=shared)
            table = OverlapCounts(neither + only_a + only_b + both, only_a + both, only_b + both, both)
            return sums_from_counts(table, lines, shared=shared)

        by_line: Sequence[Grid | None] = grids or [None] * len(pairs)
        results = self._map(sums_of, list(zip(pairs, counts.pairs, by_line, strict=True)), row.numel)
        for pair, sums in zip(pairs, results, strict=True):
            self._pairs[pair].add(row, sums)
        if counts.held.size:
            self._observed += counts.held
            self._independent += independent(rows[0].numel, [row.nnz for row in rows], which=self._which)
        if counts.stripes:
            for stripes, (by_row, by_column) in zip(self._stripes, counts.stripes, strict=True):
                stripes[rows[0].name] = stripes_of(by_row, by_column)

    def comparison(self, notes: Sequence[str]) -> Comparison:
        """The figures of every pair, and of all masks together."""
        pairs = tuple(self._overlap(pair, sums, notes) for pair, sums in self._pairs.items())
        if len(self._masks) == 2:
            return Comparison(pairs, None, tuple(self._stripes))
        crossed = intersections_of(self._observed, self._independent) if self._which else ()
        consensus = Consensus.of(self._observed, self._independent, which=self._which)
        matrix = matrix_of(pairs, [mask.name for mask in self._masks])
        return Comparison(pairs, consensus, tuple(self._stripes), matrix, crossed)

    def _overlap(self, pair: tuple[int, int], sums: _Sums, notes: Sequence[str]) -> PairOverlap:
        a, b = masks = self._masks[pair[0]], self._masks[pair[1]]
        whole = figures_of(sums.whole)
        known = {str(mask.artifact.digest): mask.name for mask in self._masks}
        same = tuple(_relation(masks, whole.counts))
        relations = same or tuple(_likeness(masks, whole.counts, known))
        doubts = () if same else tuple(_doubt(masks))
        roles, layers, modules = (
            {label: figures_of(total) for label, total in sums.groups[kind].items()}
            for kind in ("role", "layer", "module")
        )
        return PairOverlap(
            (a.name, b.name),
            (a.artifact.digest, b.artifact.digest),
            (a.artifact.manifest.rule, b.artifact.manifest.rule),
            whole,
            roles,
            layers,
            modules,
            sums.tensors,
            (*notes, *relations, *doubts, *(_missing(whole) if self._by_class else ())),
            Asked(self._spec.smallest_effect, start_of_pair(a.start, b.start), same[0] if same else ""),
            relations,
            self._by,
        )

    def _fit(self, counts: SpanCounts, grids: Sequence[Grid]) -> None:
        """Fit the masks of a tile to rounding, and to rows and columns; a mask of an earlier tile is fitted already."""
        rows, (tile, *_, pairs) = counts.span.rows, counts.span.tile
        if not tile:
            self._flips, self._beyond = {}, {}
        # Any pair tells how many coordinates of a mask, or of all, each class, row and column has.
        new = [mask for mask in counts.span.tile.masks if mask not in self._flips]
        self._flips |= {mask: self._flips_of(mask, rows[mask], counts.pairs[0]) for mask in new}
        if grids:
            counted: dict[int, tuple[Grid, Floats]] = {}
            for pair, grid in zip(pairs, grids, strict=True):
                counted |= {mask: (grid, inside) for mask, inside in zip(pair, (IN_A, IN_B), strict=True)}
            fits = self._map(lambda mask: beyond(grids[0], *counted[mask]), new, rows[0].numel)
            self._beyond |= zip(new, fits, strict=True)

    def _map(self, work: Callable[[T], R], tasks: Sequence[T], numel: int) -> Iterable[R]:
        """Work on threads, where that is worth them."""
        jobs = min(self._jobs, len(tasks), len(tasks) * numel // BATCH_NUMEL)
        return map(work, tasks) if jobs <= 1 else ordered(work, tasks, jobs=jobs)

    def _flips_of(self, number: int, row: Tensor, cells: Cells) -> Floats | str:
        if not self._by_class:
            return NO_SOURCE
        if self._no_flips[number]:
            return self._no_flips[number]
        if row.source_dtype != "BF16":
            return f"{row.name}: {off_grid(row.source_dtype)}"
        try:
            return fit_flips(cells.sum(1), row.nnz)
        except ValueError as error:
            return f"{row.name}: {error}"


class _Sums:
    def __init__(self, by: Sequence[str]) -> None:
        self.whole = OverlapSums()
        self.groups: dict[str, dict[str, OverlapSums]] = {kind: {} for kind in GROUPS}
        self.tensors: dict[str, OverlapFigures] = {}
        self._by = by

    def add(self, row: Tensor, tensor: OverlapSums) -> None:
        self.whole += tensor
        labels = {"role": row.role, "layer": row.layer, "module": module_of(row.name, row.layer)}
        for kind, label in labels.items():
            # A tensor outside every layer is in no group of them.
            if kind in self._by and label:
                groups = self.groups[kind]
                groups[label] = groups.get(label, OverlapSums()) + tensor
        if "tensor" in self._by:
            self.tensors[row.name] = figures_of(tensor)


def _check(row: Tensor, counted: int) -> None:
    if counted != row.nnz:
        raise CorruptError(f"tensor {row.name}", f"its mask has {counted} coordinates, but {row.nnz} are recorded")


def _missing(whole: OverlapFigures) -> list[str]:
    nulls = (whole.nulls[name].reason for name in (ROUNDING, ROUNDING_A, ROUNDING_B))
    reasons = dict.fromkeys(reason for reason in nulls if reason)
    return [f"the rounding null is undefined: {reason}" for reason in reasons]


@dataclass(frozen=True)
class Ancestry:
    """What an artifact was made from, as far as it is known.

    Attributes:
        steps: by digest of an ancestor, the nearest first: the kinds of the lineage recipes that lead from it to the
            artifact, such as ``("subset", "and")`` for what an ``and`` made of a subset of it.
        unknown: digests of ancestors whose own parents are not known.
    """

    steps: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()

    @classmethod
    def of_parents(cls, artifact: Artifact) -> Ancestry:
        """The parents alone."""
        manifest = artifact.manifest
        kind = (str(manifest.recipe["kind"]),) if manifest.recipe else ()
        return cls(dict.fromkeys(manifest.parents, kind))


_Pair = tuple[NamedMask, NamedMask]


def _relation(pair: _Pair, table: OverlapCounts) -> Iterator[str]:
    """Why the overlap of two masks says nothing of training, one sentence each; empty where it can."""
    a, b = pair
    if a.artifact.digest == b.artifact.digest:
        yield f"{a.name} and {b.name} are the same artifact"
        return
    if table.a == table.b == table.both:
        what = "hold the same" if table.both else "both hold no"
        yield f"{a.name} and {b.name} {what} coordinates{_of_part(pair, table)}"
    for child, parent in ((a, b), (b, a)):
        kinds = child.ancestry.steps.get(parent.artifact.digest)
        if kinds is not None:
            how = f" ({', then '.join(kinds)})" if kinds else ""
            yield f"{child.name} was made from {parent.name}{how}"


def _likeness(pair: _Pair, table: OverlapCounts, names: Mapping[str, str]) -> Iterator[str]:
    """What else two masks have in common; their overlap can still be more or less than that gives."""
    a, b = pair
    if table.a != table.b and table.most and table.both == table.most:
        small, large = (a.name, b.name) if table.a < table.b else (b.name, a.name)
        part = _of_part(pair, table)
        yield f"{small} lies in {large}{part and f', counting the coordinates{part}'}"
    common = [ancestor for ancestor in a.ancestry.steps if ancestor in b.ancestry.steps]
    nearest = min((len(a.ancestry.steps[ancestor]) for ancestor in common), default=0)
    for ancestor in common:
        if len(a.ancestry.steps[ancestor]) == nearest:
            yield f"{a.name} and {b.name} were both made from {names.get(ancestor) or Digest(ancestor).short}"


def _doubt(pair: _Pair) -> Iterator[str]:
    """Why masks without a known relation can still be related."""
    for mask in pair:
        for ancestor in mask.ancestry.unknown:
            yield (
                f"{mask.name} was made from {Digest(ancestor).short}, which is not here, so what that was made from is "
                "not known"
            )


def _of_part(pair: _Pair, table: OverlapCounts) -> str:
    """What a statement about masks is restricted to: nothing where all of them is compared."""
    whole = all(mask.artifact.manifest.totals.numel == table.numel for mask in pair)
    return "" if whole else " of what is compared"
