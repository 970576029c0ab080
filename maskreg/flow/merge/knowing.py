"""Sweeps before a merge: what a method has to know about whole tensors, or about the whole model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np

from maskreg.artifact.scope import Group
from maskreg.flow.merge.base import Known, Sums, Tile
from maskreg.flow.merge.cuts import (
    END,
    EVERYTHING,
    LOWER,
    NOTHING,
    UPPER,
    Bin,
    Codes,
    Counts,
    Cut,
    Edge,
    bin_of,
    codes_inside,
    count_lower,
    count_upper,
    edge_of,
    exact_edge,
    positions_of,
)
from maskreg.flow.merge.operands import Operands, Span, SpanBits
from maskreg.flow.merge.tiling import Arithmetic, add_up
from maskreg.parallel import ordered
from maskreg.progress import Progress
from maskreg.tensors.blocks import BLOCK_NUMEL, blocks_of, numel_of

ResultT = TypeVar("ResultT")

MODEL = ""
"""Stands for the whole model where something is given by tensor name."""

Cuts = Sequence[Sequence[Cut]]
"""By artifact, for each rank."""

_Bins = list[list[Bin | Cut]]
_Edges = list[list[Edge | Cut]]


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over the tensors that are merged.

    Attributes:
        operands: what is merged.
        arithmetic: the method.
        groups: the tensors.
        jobs: threads.
        progress: told of the elements' bytes.
    """

    operands: Operands
    arithmetic: Arithmetic
    groups: Sequence[Group]
    jobs: int
    progress: Progress

    def known(self) -> Mapping[str, Known]:
        """What the method has to know, by tensor name; by :data:`MODEL` if it is about the model.

        Raises:
            DataError: the source is another one, or an artifact is damaged.
        """
        method, settings = self.arithmetic.method, self.arithmetic.settings
        of_model = settings.get("scope", method.scope) == "model"
        known: Mapping[str, Known] = {}
        if method.ranks is not None:
            cuts = self._cuts_of_model() if of_model else self._cuts_of_tensors()
            known = {name: Known(cut) for name, cut in cuts.items()}
        if method.measure is not None and method.measures(settings):
            sums = self._sums(known, of_model)
            known = {name: Known(known.get(name, Known()).cuts, value) for name, value in sums.items()}
        return known

    def _sums(self, known: Mapping[str, Known], of_model: bool) -> dict[str, Sums]:
        measure = self.arithmetic.method.measure
        assert measure is not None

        def work(tiles: Iterable[Tile]) -> Sums:
            sums = np.empty(0)
            for tile in tiles:
                sums = add_up(sums, measure(tile))
            return sums

        sums: dict[str, Sums] = {}
        with closing(self._sweep("measure", self.groups, work, known)) as results:
            for span, more in results:
                name = MODEL if of_model else span.name
                sums[name] = add_up(sums.get(name, np.empty(0)), more)
        # A model of which nothing is merged.
        return sums

    def _ranks(self, numel: int) -> tuple[int, ...]:
        method = self.arithmetic.method
        return method.ranks(numel, self.arithmetic.settings) if method.ranks else ()

    def _cuts_of_model(self) -> dict[str, Cuts]:
        numel = sum(group.rows[0].numel for group in self.groups)
        ranks, count = self._ranks(numel), len(self.operands.artifacts)
        upper, lock = np.zeros((count, UPPER), np.int64), Lock()

        def high(tiles: Iterable[Tile]) -> None:
            counts = _upper(tiles, count)
            with lock:
                np.add(upper, counts, out=upper)

        self._run("count sizes", high, {})
        bins = [[_bin(counts, rank, numel) for rank in ranks] for counts in upper]
        lower = _lower((), bins)

        def low(tiles: Iterable[Tile]) -> None:
            counts = _lower(tiles, bins)
            with lock:
                for totals, more in zip(lower, counts, strict=True):
                    for total, part in zip(totals, more, strict=True):
                        np.add(total, part, out=total)

        self._run("rank sizes", low, {})
        # Of the size at the cut of a model, all are above it.
        edges = _edges(bins, lower)
        return {MODEL: [[_cut(edge) for edge in row] for row in edges]}

    def _cuts_of_tensors(self) -> dict[str, Cuts]:
        cuts: dict[str, Cuts] = {}
        large = [group for group in self.groups if group.rows[0].numel > BLOCK_NUMEL]
        small = [group for group in self.groups if group.rows[0].numel <= BLOCK_NUMEL]
        with closing(self._sweep("rank sizes", small, self._cuts_of_block, {})) as results:
            for span, own in results:
                cuts[span.name] = own
        bins = self._bins(large)
        edges = self._edges(large, bins)
        ends = self._ends(large, edges)
        for group in large:
            name = group.names[0]
            cuts[name] = [
                [_cut(edge, end) for edge, end in zip(*row, strict=True)]
                for row in zip(edges[name], ends[name], strict=True)
            ]
        return cuts

    def _cuts_of_block(self, tiles: Iterable[Tile]) -> Cuts:
        """The cuts of a tensor of one block, which is at hand: its tiles are made anew for each count."""
        counts = _upper(tiles, len(self.operands.artifacts))
        numel = int(counts[0].sum())
        bins = [[_bin(row, rank, numel) for rank in self._ranks(numel)] for row in counts]
        edges = _edges_at_hand(tiles, bins)
        equal = _positions(tiles, edges) if any(_missing(edge) for row in edges for edge in row) else []
        cuts = [[_cut(edge) for edge in row] for row in edges]
        for artifact, rows in enumerate(equal):
            for number, positions in enumerate(rows):
                if missing := _missing(edges[artifact][number]):
                    cuts[artifact][number] = _cut(edges[artifact][number], _end(positions, missing))
        return cuts

    def _bins(self, groups: Sequence[Group]) -> dict[str, _Bins]:
        count = len(self.operands.artifacts)
        totals: dict[str, Counts] = {}
        bins: dict[str, _Bins] = {}
        with closing(self._sweep("count sizes", groups, lambda tiles: _upper(tiles, count), {})) as results:
            for span, counts in results:
                totals[span.name] = counts if span.start == 0 else totals[span.name] + counts
                numel = span.group.rows[0].numel
                if span.stop == numel:
                    own = totals.pop(span.name)
                    bins[span.name] = [[_bin(row, rank, numel) for rank in self._ranks(numel)] for row in own]
        return bins

    def _edges(self, groups: Sequence[Group], bins: Mapping[str, _Bins]) -> dict[str, _Edges]:
        edges: dict[str, _Edges] = {}
        totals: list[list[Counts]] = []

        def work(span: Span, tiles: Iterable[Tile]) -> list[list[Counts]]:
            return _lower(tiles, bins[span.name])

        with closing(self._sweep_spans("rank sizes", groups, work, {})) as results:
            for span, counts in results:
                totals = counts if span.start == 0 else _sum(totals, counts)
                if span.stop == span.group.rows[0].numel:
                    edges[span.name] = _edges(bins[span.name], totals)
        return edges

    def _ends(self, groups: Sequence[Group], edges: Mapping[str, _Edges]) -> dict[str, list[list[int]]]:
        """Where the last of equal sizes lies that is above the cut; :data:`END` where all are."""
        ends = {name: [[END for _ in row] for row in rows] for name, rows in edges.items()}
        left = {name: [[_missing(edge) for edge in row] for row in rows] for name, rows in edges.items()}
        cut = [group for group in groups if any(number for row in left[group.names[0]] for number in row)]

        def work(span: Span, tiles: Iterable[Tile]) -> list[list[Counts]]:
            return _positions(tiles, edges[span.name])

        with closing(self._sweep_spans("place cuts", cut, work, {})) as results:
            for span, equal in results:
                for artifact, row in enumerate(equal):
                    for number, positions in enumerate(row):
                        missing = left[span.name][artifact][number]
                        if 0 < missing <= positions.size:
                            ends[span.name][artifact][number] = _end(positions, missing)
                        left[span.name][artifact][number] = max(0, missing - positions.size)
        return ends

    def _run(self, label: str, work: Callable[[Iterable[Tile]], None], known: Mapping[str, Known]) -> None:
        with closing(self._sweep(label, self.groups, work, known)) as results:
            for _ in results:
                pass

    def _sweep(
        self, label: str, groups: Sequence[Group], work: Callable[[Iterable[Tile]], ResultT], known: Mapping[str, Known]
    ) -> Generator[tuple[Span, ResultT], None, None]:
        return self._sweep_spans(label, groups, lambda _, tiles: work(tiles), known)

    def _sweep_spans(
        self,
        label: str,
        groups: Sequence[Group],
        work: Callable[[Span, Iterable[Tile]], ResultT],
        known: Mapping[str, Known],
    ) -> Generator[tuple[Span, ResultT], None, None]:
        if not groups:
            return
        width = sum(group.rows[0].numel for group in groups)
        self.progress.start(label, 2 * width)

        def call(span: Span) -> tuple[Span, ResultT]:
            about = known.get(MODEL) or known.get(span.name) or Known()
            tiles = _Tiles(self.arithmetic, span, self.operands.bits(span), about)
            return span, work(span, tiles)

        every = (Span(group, *block) for group in groups for block in blocks_of(group.rows[0].numel))
        spans = self.operands.source.ahead(every, lambda span: (span.name, span.start, span.stop))
        with closing(ordered(call, spans, jobs=self.jobs, size=numel_of)) as results:
            for span, result in results:
                self.progress.advance(2 * numel_of(span))
                yield span, result


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a span, made anew each time they are gone through; valid until the thread's next span."""

    arithmetic: Arithmetic
    span: Span
    bits: SpanBits
    known: Known

    def __iter__(self) -> Iterator[Tile]:
        return self.arithmetic.tiles(self.span.group, self.span.start, self.bits, self.known)


def _upper(tiles: Iterable[Tile], count: int) -> Counts:
    counts = np.zeros((count, UPPER), np.int64)
    for tile in tiles:
        for update, own in zip(tile.updates, counts, strict=True):
            count_upper(update, own)
    return counts


def _lower(tiles: Iterable[Tile], bins: _Bins) -> list[list[Counts]]:
    counts = [[np.zeros(LOWER if isinstance(b, Bin) else 0, np.int64) for b in row] for row in bins]
    for tile in tiles:
        for update, row, own in zip(tile.updates, bins, counts, strict=True):
            for narrowed, total in zip(row, own, strict=True):
                if isinstance(narrowed, Bin):
                    count_lower(update, narrowed.upper, total)
    return counts


def _edges_at_hand(tiles: Iterable[Tile], bins: _Bins) -> _Edges:
    inside: list[list[list[Codes]]] = [[[] for _ in row] for row in bins]
    for tile in tiles:
        for update, row, own in zip(tile.updates, bins, inside, strict=True):
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


def _positions(tiles: Iterable[Tile], edges: _Edges) -> list[list[Counts]]:
    parts: list[list[list[Counts]]] = [[[] for _ in row] for row in edges]
    for tile in tiles:
        for update, row, own in zip(tile.updates, edges, parts, strict=True):
            for edge, positions in zip(row, own, strict=True):
                if _missing(edge):
                    assert isinstance(edge, Edge)
                    positions.append(positions_of(update, edge.code) + tile.first)
    return [[np.concatenate([np.empty(0, np.int64), *positions]) for positions in row] for row in parts]


def _sum(totals: list[list[Counts]], more: list[list[Counts]]) -> list[list[Counts]]:
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(totals, more, strict=True)]


def _edges(bins: _Bins, counts: Sequence[Sequence[Counts]]) -> _Edges:
    return [
        [edge_of(own, narrowed) if isinstance(narrowed, Bin) else narrowed for narrowed, own in zip(*rows, strict=True)]
        for rows in zip(bins, counts, strict=True)
    ]


def _bin(counts: Counts, rank: int, numel: int) -> Bin | Cut:
    return bin_of(counts, rank) if 0 < rank < numel else _trivial(rank)


def _trivial(rank: int) -> Cut:
    return EVERYTHING if rank > 0 else NOTHING


def _cut(edge: Edge | Cut, end: int = END) -> Cut:
    return edge if isinstance(edge, Cut) else Cut(edge.code, end)


def _missing(edge: Edge | Cut) -> int:
    """How many of equal sizes are above the cut, where not all are; else 0."""
    return 0 if isinstance(edge, Cut) or edge.missing == edge.equal else edge.missing


def _end(positions: Counts, missing: int) -> int:
    return int(positions[missing - 1]) + 1
