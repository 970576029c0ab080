"""Sweeps before a merge: what a method has to know about whole tensors, or about the whole model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from maskreg.engine import LARGE_BATCH_NUMEL, ordered
from maskreg.flow.merge.inputs import Inputs, Span, SpanBits
from maskreg.flow.merge.methods.base import Known, Sums, Threshold, Tile
from maskreg.flow.merge.thresholds import (
    END,
    EVERYTHING,
    LOWER,
    NOTHING,
    UPPER,
    Bin,
    Codes,
    Counts,
    Edge,
    Tally,
    bin_of,
    codes_inside,
    count_lower,
    count_upper,
    edge_of,
    exact_edge,
    positions_of,
)
from maskreg.flow.merge.tiles import SpanMerger, add_up
from maskreg.progress import Progress
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo, numel_of

ResultT = TypeVar("ResultT")

MODEL = ""
"""Stands for the whole model where something is given by tensor name."""

NOTHING_KNOWN: Mapping[str, Known] = {}

Thresholds = Sequence[Sequence[Threshold]]
"""By artifact, for each rank."""

_Bins = list[list[Bin | Threshold]]
_Edges = list[list[Edge | Threshold]]
_Look = Callable[[Span, Iterable[Tile]], ResultT]


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over the tensors that are merged, on the engine at hand.

    Attributes:
        inputs: what is merged.
        merger: the method.
        tensors: those that are merged.
        jobs: threads.
        progress: told of the elements' bytes.
    """

    inputs: Inputs
    merger: SpanMerger
    tensors: Sequence[TensorInfo]
    jobs: int
    progress: Progress

    def known(self) -> Mapping[str, Known]:
        """What the method has to know, by tensor name; by :data:`MODEL` if it is about the model."""
        method, settings = self.merger.method, self.merger.settings
        of_model = settings.get("scope", method.scope) == "model"
        known: Mapping[str, Known] = {}
        if method.ranks is not None:
            thresholds = self._thresholds_of_model() if of_model else self._thresholds_of_tensors()
            known = {name: Known(own) for name, own in thresholds.items()}
        if method.measure is not None and method.measures(settings):
            sums = self._sums(known, of_model)
            known = {name: Known(known.get(name, Known()).thresholds, value) for name, value in sums.items()}
        return known

    def _sums(self, known: Mapping[str, Known], of_model: bool) -> dict[str, Sums]:
        sums: dict[str, Sums] = {}
        with closing(self._sweep("measure", self.tensors, partial(_measured, self.merger), known)) as results:
            for span, more in results:
                name = MODEL if of_model else span.name
                sums[name] = add_up(sums.get(name, np.empty(0)), more)
        # A model of which nothing is merged.
        return sums

    def _thresholds_of_model(self) -> dict[str, Thresholds]:
        numel = sum(tensor.numel for tensor in self.tensors)
        count = self.merger.rankings
        upper = np.zeros((count, UPPER), np.int64)
        with closing(self._sweep("count sizes", self.tensors, partial(_upper_tallies, self.merger))) as results:
            for _, tallies in results:
                for tally, counts in zip(tallies, upper, strict=True):
                    tally.add_to(counts)
        bins = _ranked(self.merger, MODEL, upper, numel)
        lower = _no_lower(bins)
        with closing(
            self._sweep("rank sizes", self.tensors, partial(_lower_tallies, self.merger, {MODEL: bins}))
        ) as results:
            for _, rows in results:
                _add_tallies(lower, rows)
        # Of the size at the threshold of a model, all are above it.
        edges = _edges(bins, lower)
        return {MODEL: [[_threshold(edge) for edge in row] for row in edges]}

    def _thresholds_of_tensors(self) -> dict[str, Thresholds]:
        thresholds: dict[str, Thresholds] = {}
        # A tensor that is taken as a whole has no thresholds, and is not read for them.
        none = [0] * self.merger.rankings
        ranked = [each for each in self.tensors if any(self.merger.ranks(each.name, each.numel, none))]
        large = [tensor for tensor in ranked if tensor.numel > BLOCK_NUMEL]
        small = [tensor for tensor in ranked if tensor.numel <= BLOCK_NUMEL]
        at_once = partial(_thresholds_of_block, self.merger)
        with closing(self._sweep("rank sizes", small, at_once)) as results:
            for span, own in results:
                thresholds[span.name] = own
        bins = self._bins(large)
        edges = self._edges(large, bins)
        ends = self._ends(large, edges)
        for name in (tensor.name for tensor in large):
            thresholds[name] = [
                [_threshold(edge, end) for edge, end in zip(*row, strict=True)]
                for row in zip(edges[name], ends[name], strict=True)
            ]
        return thresholds

    def _bins(self, tensors: Sequence[TensorInfo]) -> dict[str, _Bins]:
        count = self.merger.rankings
        bins: dict[str, _Bins] = {}
        with closing(self._sweep("count sizes", tensors, partial(_upper_tallies, self.merger))) as results:
            for span, tallies in results:
                if span.start == 0:
                    totals = np.zeros((count, UPPER), np.int64)
                for tally, counts in zip(tallies, totals, strict=True):
                    tally.add_to(counts)
                if span.ends_tensor:
                    bins[span.name] = _ranked(self.merger, span.name, totals, span.tensor.numel)
        return bins

    def _edges(self, tensors: Sequence[TensorInfo], bins: Mapping[str, _Bins]) -> dict[str, _Edges]:
        edges: dict[str, _Edges] = {}
        with closing(self._sweep("rank sizes", tensors, partial(_lower_tallies, self.merger, bins))) as results:
            for span, rows in results:
                if span.start == 0:
                    totals = _no_lower(bins[span.name])
                _add_tallies(totals, rows)
                if span.ends_tensor:
                    edges[span.name] = _edges(bins[span.name], totals)
        return edges

    def _ends(self, tensors: Sequence[TensorInfo], edges: Mapping[str, _Edges]) -> dict[str, list[list[int]]]:
        """The end of the last of equal sizes above the threshold; :data:`END` where all are above it."""
        ends = {name: [[END for _ in row] for row in rows] for name, rows in edges.items()}
        left = {name: [[_missing(edge) for edge in row] for row in rows] for name, rows in edges.items()}
        tied = [tensor for tensor in tensors if any(number for row in left[tensor.name] for number in row)]
        with closing(self._sweep("place thresholds", tied, partial(_positions_at, self.merger, edges))) as results:
            for span, equal in results:
                for artifact, row in enumerate(equal):
                    for number, positions in enumerate(row):
                        missing = left[span.name][artifact][number]
                        if 0 < missing <= positions.size:
                            ends[span.name][artifact][number] = _end(positions, missing)
                        left[span.name][artifact][number] = max(0, missing - positions.size)
        return ends

    def _sweep(
        self,
        label: str,
        tensors: Sequence[TensorInfo],
        look: _Look[ResultT],
        known: Mapping[str, Known] = NOTHING_KNOWN,
    ) -> Generator[tuple[Span, ResultT], None, None]:
        """What ``look`` makes of each span, in order."""
        if not tensors:
            return
        self.progress.start(label, 2 * sum(tensor.numel for tensor in tensors))
        work = _Looking(self.inputs, self.merger, known, look)
        every = (Span(tensor, *block) for tensor in tensors for block in self.merger.spans(tensor))
        spans = self.inputs.source.ahead(every, lambda span: (span.name, span.start, span.stop))
        with closing(
            ordered(work, spans, jobs=self.jobs, size=numel_of, near=work.near, together=LARGE_BATCH_NUMEL)
        ) as results:
            for span, result in results:
                self.progress.advance(2 * numel_of(span))
                yield span, result


@dataclass(frozen=True)
class _Looking(Generic[ResultT]):
    """The work of a sweep: what ``look`` makes of the tiles of a span."""

    inputs: Inputs
    merger: SpanMerger
    known: Mapping[str, Known]
    look: _Look[ResultT]

    def __call__(self, span: Span) -> tuple[Span, ResultT]:
        about = self.known.get(MODEL) or self.known.get(span.name) or Known()
        return span, self.look(span, _Tiles(self.merger, span, self.inputs.bits(span), about))

    def near(self, span: Span) -> str:
        """The object of an artifact that a span needs."""
        return self.inputs.place_of(span.name, span.start)


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a span, made anew each time they are gone through; valid until the thread's next span."""

    merger: SpanMerger
    span: Span
    bits: SpanBits
    known: Known

    def __iter__(self) -> Iterator[Tile]:
        return self.merger.tiles(self.span.tensor, self.span.start, self.bits, self.known)


def _measured(merger: SpanMerger, span: Span, tiles: Iterable[Tile]) -> Sums:
    measure = merger.method.measure
    assert measure is not None
    sums = np.empty(0)
    for tile in tiles:
        sums = add_up(sums, measure(tile))
    return sums


def _thresholds_of_block(merger: SpanMerger, span: Span, tiles: Iterable[Tile]) -> Thresholds:
    """The thresholds of a tensor of one block, which is at hand: its tiles are made anew for each count."""
    counts = _upper(merger, tiles)
    bins = _ranked(merger, span.name, counts, int(counts[0].sum()))
    edges = _edges_at_hand(merger, tiles, bins)
    equal = _positions(merger, tiles, edges) if any(_missing(edge) for row in edges for edge in row) else []
    thresholds = [[_threshold(edge) for edge in row] for row in edges]
    for artifact, rows in enumerate(equal):
        for number, positions in enumerate(rows):
            if missing := _missing(edges[artifact][number]):
                thresholds[artifact][number] = _threshold(edges[artifact][number], _end(positions, missing))
    return thresholds


def _upper_tallies(merger: SpanMerger, span: Span, tiles: Iterable[Tile]) -> list[Tally]:
    return [Tally.of(counts) for counts in _upper(merger, tiles)]


def _lower_tallies(
    merger: SpanMerger, bins: Mapping[str, _Bins], span: Span, tiles: Iterable[Tile]
) -> list[list[Tally]]:
    own = bins.get(MODEL) or bins[span.name]
    return [[Tally.of(counts) for counts in row] for row in _lower(merger, tiles, own)]


def _positions_at(
    merger: SpanMerger, edges: Mapping[str, _Edges], span: Span, tiles: Iterable[Tile]
) -> list[list[Counts]]:
    return _positions(merger, tiles, edges[span.name])


def _upper(merger: SpanMerger, tiles: Iterable[Tile]) -> Counts:
    counts = np.zeros((merger.rankings, UPPER), np.int64)
    for tile in tiles:
        for update, own in zip(merger.ranked(tile), counts, strict=True):
            count_upper(update, own)
    return counts


def _lower(merger: SpanMerger, tiles: Iterable[Tile], bins: _Bins) -> list[list[Counts]]:
    counts = _no_lower(bins)
    for tile in tiles:
        for update, row, own in zip(merger.ranked(tile), bins, counts, strict=True):
            for narrowed, total in zip(row, own, strict=True):
                if isinstance(narrowed, Bin):
                    count_lower(update, narrowed.upper, total)
    return counts


def _no_lower(bins: _Bins) -> list[list[Counts]]:
    return [[np.zeros(LOWER if isinstance(b, Bin) else 0, np.int64) for b in row] for row in bins]


def _add_tallies(totals: Sequence[Sequence[Counts]], rows: Sequence[Sequence[Tally]]) -> None:
    for own, tallies in zip(totals, rows, strict=True):
        for counts, tally in zip(own, tallies, strict=True):
            tally.add_to(counts)


def _edges_at_hand(merger: SpanMerger, tiles: Iterable[Tile], bins: _Bins) -> _Edges:
    inside: list[list[list[Codes]]] = [[[] for _ in row] for row in bins]
    for tile in tiles:
        for update, row, own in zip(merger.ranked(tile), bins, inside, strict=True):
            for narrowed, codes in zip(row, own, strict=True):
                if isinstance(narrowed, Bin):
                    codes.append(codes_inside(update, narrowed.upper))
    return [
        [
            exact_edge(codes, narrowed) if isinstance(narrowed, Bin) else narrowed
            for narrowed, codes in zip(*rows, strict=True)
        ]
        for rows in zip(bins, inside, strict=True)
    ]


def _positions(merger: SpanMerger, tiles: Iterable[Tile], edges: _Edges) -> list[list[Counts]]:
    parts: list[list[list[Counts]]] = [[[] for _ in row] for row in edges]
    for tile in tiles:
        for update, row, own in zip(merger.ranked(tile), edges, parts, strict=True):
            for edge, positions in zip(row, own, strict=True):
                if _missing(edge):
                    assert isinstance(edge, Edge)
                    positions.append(positions_of(update, edge.code) + tile.first)
    return [[np.concatenate([np.empty(0, np.int64), *positions]) for positions in row] for row in parts]


def _edges(bins: _Bins, counts: Sequence[Sequence[Counts]]) -> _Edges:
    return [
        [edge_of(own, narrowed) if isinstance(narrowed, Bin) else narrowed for narrowed, own in zip(*rows, strict=True)]
        for rows in zip(bins, counts, strict=True)
    ]


def _ranked(merger: SpanMerger, name: str, counts: Counts, numel: int) -> _Bins:
    pairs = zip(counts, merger.ranks(name, numel, counts[:, 0].tolist()), strict=True)
    return [[_bin(row, rank, numel) for rank in ranks] for row, ranks in pairs]


def _bin(counts: Counts, rank: int, numel: int) -> Bin | Threshold:
    return bin_of(counts, rank) if 0 < rank < numel else _trivial(rank)


def _trivial(rank: int) -> Threshold:
    return EVERYTHING if rank > 0 else NOTHING


def _threshold(edge: Edge | Threshold, end: int = END) -> Threshold:
    return edge if isinstance(edge, Threshold) else Threshold(edge.code, end)


def _missing(edge: Edge | Threshold) -> int:
    """How many of equal sizes are above the threshold, where not all are; else 0."""
    return 0 if isinstance(edge, Threshold) or edge.missing == edge.equal else edge.missing


def _end(positions: Counts, missing: int) -> int:
    return int(positions[missing - 1]) + 1
