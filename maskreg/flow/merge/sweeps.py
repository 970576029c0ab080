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
    LOWER,
    UPPER,
    Codes,
    Counts,
    Search,
    Tally,
    codes_inside,
    count_lower,
    count_upper,
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

_Places = Mapping[str, Sequence[tuple[int, int]]]
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
        upper = np.zeros((self.merger.rankings, UPPER), np.int64)
        with closing(self._sweep("count sizes", self.tensors, partial(_upper, self.merger))) as results:
            for _, tallies in results:
                _add(upper, tallies)
        searches = _begun(self.merger, MODEL, upper, numel)
        places = {MODEL: [(search.order, search.upper) for search in searches if not search.found]}
        lower = np.zeros((len(places[MODEL]), LOWER), np.int64)
        with closing(self._sweep("rank sizes", self.tensors, partial(_lower, self.merger, places))) as results:
            for _, tallies in results:
                _add(lower, tallies)
        for search, counts in zip(_open(searches), lower, strict=True):
            search.narrow(counts)
        # Of the size at the threshold of a model, all are above it.
        return {MODEL: self._by_order(searches)}

    def _thresholds_of_tensors(self) -> dict[str, Thresholds]:
        # A tensor that is taken as a whole has no thresholds, and is not read for them.
        none = [0] * self.merger.rankings
        ranked = [each for each in self.tensors if any(self.merger.ranks(each.name, each.numel, none))]
        large = [tensor for tensor in ranked if tensor.numel > BLOCK_NUMEL]
        small = [tensor for tensor in ranked if tensor.numel <= BLOCK_NUMEL]
        searches: dict[str, list[Search]] = {}
        with closing(self._sweep("rank sizes", small, partial(_searched_at_hand, self.merger))) as results:
            for span, found in results:
                searches[span.name] = found
        with closing(self._sweep("count sizes", large, partial(_upper, self.merger))) as results:
            for span, tallies in results:
                if span.start == 0:
                    upper = np.zeros((self.merger.rankings, UPPER), np.int64)
                _add(upper, tallies)
                if span.ends_tensor:
                    searches[span.name] = _begun(self.merger, span.name, upper, span.tensor.numel)
        self._narrow(large, searches)
        self._place(large, searches)
        return {name: self._by_order(found) for name, found in searches.items()}

    def _narrow(self, tensors: Sequence[TensorInfo], searches: Mapping[str, list[Search]]) -> None:
        # What travels stays as it is here, while searches go on.
        places = {each.name: [(s.order, s.upper) for s in _open(searches[each.name])] for each in tensors}
        left = [each for each in tensors if places[each.name]]
        with closing(self._sweep("rank sizes", left, partial(_lower, self.merger, places))) as results:
            for span, tallies in results:
                if span.start == 0:
                    lower = np.zeros((len(places[span.name]), LOWER), np.int64)
                _add(lower, tallies)
                if span.ends_tensor:
                    for search, counts in zip(_open(searches[span.name]), lower, strict=True):
                        search.narrow(counts)

    def _place(self, tensors: Sequence[TensorInfo], searches: Mapping[str, list[Search]]) -> None:
        tied = {each.name: _open(searches[each.name]) for each in tensors}
        places = {name: [(s.order, s.code) for s in own] for name, own in tied.items()}
        left = [each for each in tensors if tied[each.name]]
        with closing(self._sweep("place thresholds", left, partial(_equal, self.merger, places))) as results:
            for span, equal in results:
                for search, positions in zip(tied[span.name], equal, strict=True):
                    search.place(positions)

    def _by_order(self, searches: Sequence[Search]) -> Thresholds:
        return [[s.threshold for s in searches if s.order == order] for order in range(self.merger.rankings)]

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


def _begun(merger: SpanMerger, name: str, upper: Counts, numel: int) -> list[Search]:
    ranks = merger.ranks(name, numel, upper[:, 0].tolist())
    return [
        Search.begin(order, rank, counts, numel)
        for order, (counts, row) in enumerate(zip(upper, ranks, strict=True))
        for rank in row
    ]


def _open(searches: Sequence[Search]) -> list[Search]:
    return [search for search in searches if search.found is None]


def _add(totals: Counts, tallies: Sequence[Tally]) -> None:
    for total, tally in zip(totals, tallies, strict=True):
        tally.add_to(total)


def _searched_at_hand(merger: SpanMerger, span: Span, tiles: Iterable[Tile]) -> list[Search]:
    """The searches of a tensor of one block, which is at hand: its tiles are made anew for each count."""
    counts = _counted(merger, tiles)
    searches = _begun(merger, span.name, counts, int(counts[0].sum()))
    if left := _open(searches):
        codes: list[list[Codes]] = [[] for _ in left]
        for tile in tiles:
            ranked = merger.ranked(tile)
            for search, own in zip(left, codes, strict=True):
                own.append(codes_inside(ranked[search.order], search.upper))
        for search, own in zip(left, codes, strict=True):
            search.narrow_to(own)
    if left := _open(searches):
        at_hand = {span.name: [(search.order, search.code) for search in left]}
        for search, positions in zip(left, _equal(merger, at_hand, span, tiles), strict=True):
            search.place(positions)
    return searches


def _counted(merger: SpanMerger, tiles: Iterable[Tile]) -> Counts:
    counts = np.zeros((merger.rankings, UPPER), np.int64)
    for tile in tiles:
        for update, own in zip(merger.ranked(tile), counts, strict=True):
            count_upper(update, own)
    return counts


def _upper(merger: SpanMerger, span: Span, tiles: Iterable[Tile]) -> list[Tally]:
    return [Tally.of(counts) for counts in _counted(merger, tiles)]


def _lower(merger: SpanMerger, places: _Places, span: Span, tiles: Iterable[Tile]) -> list[Tally]:
    """Counts of lower bits for each search, which has these upper bits."""
    own = places.get(MODEL) or places.get(span.name, [])
    counts = np.zeros((len(own), LOWER), np.int64)
    for tile in tiles:
        ranked = merger.ranked(tile)
        for (order, upper), total in zip(own, counts, strict=True):
            count_lower(ranked[order], upper, total)
    return [Tally.of(total) for total in counts]


def _equal(merger: SpanMerger, places: _Places, span: Span, tiles: Iterable[Tile]) -> list[Counts]:
    """Positions of the sizes with these bits, for each search."""
    parts: list[list[Counts]] = [[np.empty(0, np.int64)] for _ in places[span.name]]
    for tile in tiles:
        ranked = merger.ranked(tile)
        for (order, code), positions in zip(places[span.name], parts, strict=True):
            positions.append(positions_of(ranked[order], code) + tile.first)
    return [np.concatenate(positions) for positions in parts]
