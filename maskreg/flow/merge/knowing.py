"""Sweeps before a merge: what a method has to know about whole tensors, or about the whole model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from maskreg.engine import LARGE_BATCH_NUMEL, ordered
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
    Tally,
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
from maskreg.progress import Progress
from maskreg.tensors.blocks import BLOCK_NUMEL, numel_of
from maskreg.tensors.info import TensorInfo

ResultT = TypeVar("ResultT")

MODEL = ""
"""Stands for the whole model where something is given by tensor name."""

NOTHING_KNOWN: Mapping[str, Known] = {}

Cuts = Sequence[Sequence[Cut]]
"""By artifact, for each rank."""

_Bins = list[list[Bin | Cut]]
_Edges = list[list[Edge | Cut]]
_Look = Callable[[Span, Iterable[Tile]], ResultT]


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over the tensors that are merged, on the engine at hand.

    Attributes:
        operands: what is merged.
        arithmetic: the method.
        tensors: those that are merged.
        jobs: threads.
        progress: told of the elements' bytes.
    """

    operands: Operands
    arithmetic: Arithmetic
    tensors: Sequence[TensorInfo]
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
        sums: dict[str, Sums] = {}
        with closing(self._sweep("measure", self.tensors, partial(_measured, self.arithmetic), known)) as results:
            for span, more in results:
                name = MODEL if of_model else span.name
                sums[name] = add_up(sums.get(name, np.empty(0)), more)
        # A model of which nothing is merged.
        return sums

    def _cuts_of_model(self) -> dict[str, Cuts]:
        numel = sum(tensor.numel for tensor in self.tensors)
        count = self.arithmetic.rankings
        upper = np.zeros((count, UPPER), np.int64)
        with closing(self._sweep("count sizes", self.tensors, partial(_upper_tallies, self.arithmetic))) as results:
            for _, tallies in results:
                for tally, counts in zip(tallies, upper, strict=True):
                    tally.add_to(counts)
        bins = _ranked(self.arithmetic, MODEL, upper, numel)
        lower = _no_lower(bins)
        with closing(
            self._sweep("rank sizes", self.tensors, partial(_lower_tallies, self.arithmetic, {MODEL: bins}))
        ) as results:
            for _, rows in results:
                _add_tallies(lower, rows)
        # Of the size at the cut of a model, all are above it.
        edges = _edges(bins, lower)
        return {MODEL: [[_cut(edge) for edge in row] for row in edges]}

    def _cuts_of_tensors(self) -> dict[str, Cuts]:
        cuts: dict[str, Cuts] = {}
        # A tensor that is taken as a whole has no cuts, and is not read for them.
        none = [0] * self.arithmetic.rankings
        ranked = [each for each in self.tensors if any(self.arithmetic.ranks(each.name, each.numel, none))]
        large = [tensor for tensor in ranked if tensor.numel > BLOCK_NUMEL]
        small = [tensor for tensor in ranked if tensor.numel <= BLOCK_NUMEL]
        at_once = partial(_cuts_of_block, self.arithmetic)
        with closing(self._sweep("rank sizes", small, at_once)) as results:
            for span, own in results:
                cuts[span.name] = own
        bins = self._bins(large)
        edges = self._edges(large, bins)
        ends = self._ends(large, edges)
        for name in (tensor.name for tensor in large):
            cuts[name] = [
                [_cut(edge, end) for edge, end in zip(*row, strict=True)]
                for row in zip(edges[name], ends[name], strict=True)
            ]
        return cuts

    def _bins(self, tensors: Sequence[TensorInfo]) -> dict[str, _Bins]:
        count = self.arithmetic.rankings
        bins: dict[str, _Bins] = {}
        with closing(self._sweep("count sizes", tensors, partial(_upper_tallies, self.arithmetic))) as results:
            for span, tallies in results:
                if span.start == 0:
                    totals = np.zeros((count, UPPER), np.int64)
                for tally, counts in zip(tallies, totals, strict=True):
                    tally.add_to(counts)
                if span.ends_tensor:
                    bins[span.name] = _ranked(self.arithmetic, span.name, totals, span.tensor.numel)
        return bins

    def _edges(self, tensors: Sequence[TensorInfo], bins: Mapping[str, _Bins]) -> dict[str, _Edges]:
        edges: dict[str, _Edges] = {}
        with closing(self._sweep("rank sizes", tensors, partial(_lower_tallies, self.arithmetic, bins))) as results:
            for span, rows in results:
                if span.start == 0:
                    totals = _no_lower(bins[span.name])
                _add_tallies(totals, rows)
                if span.ends_tensor:
                    edges[span.name] = _edges(bins[span.name], totals)
        return edges

    def _ends(self, tensors: Sequence[TensorInfo], edges: Mapping[str, _Edges]) -> dict[str, list[list[int]]]:
        """Where the last of equal sizes lies that is above the cut; :data:`END` where all are."""
        ends = {name: [[END for _ in row] for row in rows] for name, rows in edges.items()}
        left = {name: [[_missing(edge) for edge in row] for row in rows] for name, rows in edges.items()}
        cut = [tensor for tensor in tensors if any(number for row in left[tensor.name] for number in row)]
        with closing(self._sweep("place cuts", cut, partial(_positions_at, self.arithmetic, edges))) as results:
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
        work = _Looking(self.operands, self.arithmetic, known, look)
        every = (Span(tensor, *block) for tensor in tensors for block in self.arithmetic.spans(tensor))
        spans = self.operands.source.ahead(every, lambda span: (span.name, span.start, span.stop))
        with closing(
            ordered(work, spans, jobs=self.jobs, size=numel_of, near=work.near, together=LARGE_BATCH_NUMEL)
        ) as results:
            for span, result in results:
                self.progress.advance(2 * numel_of(span))
                yield span, result


@dataclass(frozen=True)
class _Looking(Generic[ResultT]):
    """The work of a sweep: what ``look`` makes of the tiles of a span."""

    operands: Operands
    arithmetic: Arithmetic
    known: Mapping[str, Known]
    look: _Look[ResultT]

    def __call__(self, span: Span) -> tuple[Span, ResultT]:
        about = self.known.get(MODEL) or self.known.get(span.name) or Known()
        return span, self.look(span, _Tiles(self.arithmetic, span, self.operands.bits(span), about))

    def near(self, span: Span) -> str:
        """The object of an artifact that a span needs."""
        return self.operands.place_of(span.name, span.start)


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a span, made anew each time they are gone through; valid until the thread's next span."""

    arithmetic: Arithmetic
    span: Span
    bits: SpanBits
    known: Known

    def __iter__(self) -> Iterator[Tile]:
        return self.arithmetic.tiles(self.span.tensor, self.span.start, self.bits, self.known)


def _measured(arithmetic: Arithmetic, span: Span, tiles: Iterable[Tile]) -> Sums:
    measure = arithmetic.method.measure
    assert measure is not None
    sums = np.empty(0)
    for tile in tiles:
        sums = add_up(sums, measure(tile))
    return sums


def _cuts_of_block(arithmetic: Arithmetic, span: Span, tiles: Iterable[Tile]) -> Cuts:
    """The cuts of a tensor of one block, which is at hand: its tiles are made anew for each count."""
    counts = _upper(arithmetic, tiles)
    bins = _ranked(arithmetic, span.name, counts, int(counts[0].sum()))
    edges = _edges_at_hand(arithmetic, tiles, bins)
    equal = _positions(arithmetic, tiles, edges) if any(_missing(edge) for row in edges for edge in row) else []
    cuts = [[_cut(edge) for edge in row] for row in edges]
    for artifact, rows in enumerate(equal):
        for number, positions in enumerate(rows):
            if missing := _missing(edges[artifact][number]):
                cuts[artifact][number] = _cut(edges[artifact][number], _end(positions, missing))
    return cuts


def _upper_tallies(arithmetic: Arithmetic, span: Span, tiles: Iterable[Tile]) -> list[Tally]:
    return [Tally.of(counts) for counts in _upper(arithmetic, tiles)]


def _lower_tallies(
    arithmetic: Arithmetic, bins: Mapping[str, _Bins], span: Span, tiles: Iterable[Tile]
) -> list[list[Tally]]:
    own = bins.get(MODEL) or bins[span.name]
    return [[Tally.of(counts) for counts in row] for row in _lower(arithmetic, tiles, own)]


def _positions_at(
    arithmetic: Arithmetic, edges: Mapping[str, _Edges], span: Span, tiles: Iterable[Tile]
) -> list[list[Counts]]:
    return _positions(arithmetic, tiles, edges[span.name])


def _upper(arithmetic: Arithmetic, tiles: Iterable[Tile]) -> Counts:
    counts = np.zeros((arithmetic.rankings, UPPER), np.int64)
    for tile in tiles:
        for update, own in zip(arithmetic.ranked(tile), counts, strict=True):
            count_upper(update, own)
    return counts


def _lower(arithmetic: Arithmetic, tiles: Iterable[Tile], bins: _Bins) -> list[list[Counts]]:
    counts = _no_lower(bins)
    for tile in tiles:
        for update, row, own in zip(arithmetic.ranked(tile), bins, counts, strict=True):
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


def _edges_at_hand(arithmetic: Arithmetic, tiles: Iterable[Tile], bins: _Bins) -> _Edges:
    inside: list[list[list[Codes]]] = [[[] for _ in row] for row in bins]
    for tile in tiles:
        for update, row, own in zip(arithmetic.ranked(tile), bins, inside, strict=True):
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


def _positions(arithmetic: Arithmetic, tiles: Iterable[Tile], edges: _Edges) -> list[list[Counts]]:
    parts: list[list[list[Counts]]] = [[[] for _ in row] for row in edges]
    for tile in tiles:
        for update, row, own in zip(arithmetic.ranked(tile), edges, parts, strict=True):
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


def _ranked(arithmetic: Arithmetic, name: str, counts: Counts, numel: int) -> _Bins:
    pairs = zip(counts, arithmetic.ranks(name, numel, counts[:, 0].tolist()), strict=True)
    return [[_bin(row, rank, numel) for rank in ranks] for row, ranks in pairs]


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
