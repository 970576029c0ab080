"""Sweeps before a merge: what a method has to know about whole tensors, or about the whole model.

A threshold is the size above which lie the m largest of many fp32 numbers, found by counting and not by sorting. The
bits of a positive fp32 number, read as a whole number, are in the order of the numbers. So counts of the upper 15 bits
say in which bin the m-th largest lies, and counts of the lower 16 bits within that bin say which it is::

    m = 3 of   .71 .12 .35 .90 .36 .44      upper bits  .7 .1 .3 .9 .3 .4
    sweep 1    counts by upper bits: one .9, one .7, one .4 -> the third largest has upper bits .4
    sweep 2    counts of lower bits among those: .44

Equal sizes are taken in the order of their coordinates, so a third sweep finds where the last one taken lies. Zeros
need no order, since adding them or not is the same: where a threshold lies among them, as it does in an update that is
mostly 0, all of them are above it, and none are gathered. A tensor of one block is read once for all three.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.flow.merge.inputs import Inputs, Span
from maskreg.flow.merge.methods.base import Floats, Known, Sums, Threshold, Tile, size_codes
from maskreg.flow.merge.tiles import SpanMerger, add_up
from maskreg.parallel import ordered
from maskreg.progress import Progress
from maskreg.tensors.info import BLOCK_NUMEL, TensorInfo, numel_of

ResultT = TypeVar("ResultT")
Counts = npt.NDArray[np.int64]
Thresholds = Sequence[Sequence[Threshold]]
"""By artifact, for each rank."""

MODEL = ""
"""Stands for the whole model where something is given by tensor name."""

UPPER, LOWER = 1 << 15, 1 << 16
"""Bins of the upper and of the lower bits of a size."""

_END = 1 << 62
# End of a threshold that all of its size are above.
NOTHING = Threshold(0xFFFFFFFF, 0)
EVERYTHING = Threshold(0, _END)

_Places = Mapping[str, Sequence[tuple[int, int]]]
"""By name, for each search its order and the bits that it has found so far."""

_Tiles = Callable[[], Iterator[Tile]]
"""Makes the tiles of a span; they are valid until the thread's next span."""

_NOTHING_KNOWN: Mapping[str, Known] = {}


@dataclass
class Search:
    """The search for one threshold: above it are ``missing`` of an order's sizes, in the end of equal sizes alone.

    An order is the update of an artifact, or the spread over all. ``upper`` is the upper bits of the size at the
    threshold, once these are counted, and ``code`` all of its bits.
    """

    order: int
    missing: int
    found: Threshold | None = None
    upper: int = 0
    code: int = 0

    @classmethod
    def begin(cls, order: int, rank: int, counts: Counts) -> Search:
        """Search for the threshold above which ``rank`` sizes are, given the counts of all by upper bits."""
        if not 0 < rank < counts.sum():
            return cls(order, rank, EVERYTHING if rank > 0 else NOTHING)
        upper, missing = _largest(counts, rank)
        return cls(order, missing, upper=upper)

    def narrow(self, counts: Counts) -> None:
        """Take the counts of lower bits among sizes with these upper bits, without zeros."""
        # Then it lies among the zeros, which are not counted here.
        if self.missing > counts.sum():
            self.found = EVERYTHING
            return
        lower, self.missing = _largest(counts, self.missing)
        self.code = self.upper << 16 | lower
        # All of the size at the threshold are above it, so their places do not matter.
        if self.missing == counts[lower]:
            self.found = self.threshold

    def place(self, positions: Counts) -> None:
        """Take the next positions of sizes that equal the one at the threshold, ascending."""
        if self.found is None and self.missing <= positions.size:
            self.found = Threshold(self.code, int(positions[self.missing - 1]) + 1)
        self.missing -= positions.size

    @property
    def threshold(self) -> Threshold:
        """What was found; where equal sizes were not placed, all of them are above."""
        return self.found or Threshold(self.code, _END)


@dataclass(frozen=True)
class Sweeps:
    """Sweeps over the tensors that are merged, on the engine at hand; ``progress`` is told of the elements' bytes."""

    inputs: Inputs
    merger: SpanMerger
    tensors: Sequence[TensorInfo]
    jobs: int
    progress: Progress

    def known(self) -> Mapping[str, Known]:
        """What the method has to know, by tensor name; by :data:`MODEL` if it is about the model."""
        merger, method, settings = self.merger, self.merger.method, self.merger.recipe.settings
        of_model = settings.get("scope", method.scope) == "model"
        known: Mapping[str, Known] = {}
        # Where all are taken whole, nothing is read to rank it.
        if method.ranks(0, settings):
            known = {name: Known(own) for name, own in self._thresholds(of_model).items()}
        if method.measure is not None and method.measures(settings):
            sums: dict[str, Sums] = {}
            with closing(self._sweep("measure", self.tensors, partial(_measured, merger), known)) as results:
                for span, more in results:
                    name = MODEL if of_model else span.name
                    sums[name] = add_up(sums.get(name, np.empty(0)), more)
            known = {name: Known(known.get(name, Known()).thresholds, value) for name, value in sums.items()}
        return known

    def _thresholds(self, of_model: bool) -> dict[str, Thresholds]:
        merger, searches = self.merger, dict[str, list[Search]]()
        large: Sequence[TensorInfo] = self.tensors
        if not of_model:
            large = [tensor for tensor in self.tensors if tensor.numel > BLOCK_NUMEL]
            small = [tensor for tensor in self.tensors if tensor.numel <= BLOCK_NUMEL]
            with closing(self._sweep("rank sizes", small, partial(_searched, merger))) as results:
                searches |= {span.name: found for span, found in results}
        for name, upper in self._added_up("count sizes", large, partial(_upper, merger), of_model):
            searches[name] = _begun(merger, upper)

        def left(places: _Places) -> list[TensorInfo]:
            return [each for each in large if places[MODEL if of_model else each.name]]

        names = [MODEL] if of_model else [each.name for each in large]
        # What travels stays as it is here, while searches go on.
        places: _Places = {name: [(s.order, s.upper) for s in _open(searches.get(name, []))] for name in names}
        for name, lower in self._added_up("rank sizes", left(places), partial(_lower, merger, places), of_model):
            for search, counts in zip(_open(searches[name]), lower, strict=True):
                search.narrow(counts)
        if not of_model:
            # Of the size at the threshold of a model, all are above it.
            tied = {name: _open(searches[name]) for name in names}
            places = {name: [(s.order, s.code) for s in own] for name, own in tied.items()}
            look = partial(_equal, merger, places)
            with closing(self._sweep("place thresholds", left(places), look)) as equal:
                for span, found in equal:
                    for search, positions in zip(tied[span.name], found, strict=True):
                        search.place(positions)
        orders = range(merger.rankings)
        return {
            name: [[s.threshold for s in own if s.order == order] for order in orders] for name, own in searches.items()
        }

    def _added_up(
        self, label: str, tensors: Sequence[TensorInfo], look: Callable[[Span, _Tiles], Counts], of_model: bool
    ) -> Iterator[tuple[str, Counts]]:
        """The counts of each tensor, or of the model, by name."""
        with closing(self._sweep(label, tensors, look)) as results:
            # Spans come in order, so all of a tensor are next to each other.
            for name, spans in groupby(results, lambda each: MODEL if of_model else each[0].name):
                yield name, reduce(add, (counts for _, counts in spans))

    def _sweep(
        self,
        label: str,
        tensors: Sequence[TensorInfo],
        look: Callable[[Span, _Tiles], ResultT],
        known: Mapping[str, Known] = _NOTHING_KNOWN,
    ) -> Generator[tuple[Span, ResultT], None, None]:
        """What ``look`` makes of each span, in order."""
        if not tensors:
            return
        inputs, merger = self.inputs, self.merger

        def work(span: Span) -> tuple[Span, ResultT]:
            about = known.get(MODEL) or known.get(span.name) or Known()
            bits = inputs.bits(span)
            return span, look(span, lambda: merger.tiles(span.tensor, span.start, bits, about))

        self.progress.start(label, 2 * sum(tensor.numel for tensor in tensors))
        every = (Span(tensor, *block) for tensor in tensors for block in merger.spans(tensor))
        spans = inputs.source.ahead(every, lambda span: (span.name, span.start, span.stop))
        with closing(ordered(work, spans, jobs=self.jobs, size=numel_of)) as results:
            for span, result in results:
                self.progress.advance(2 * numel_of(span))
                yield span, result


def _measured(merger: SpanMerger, span: Span, tiles: _Tiles) -> Sums:
    measure = merger.method.measure
    assert measure is not None
    sums = np.empty(0)
    for tile in tiles():
        sums = add_up(sums, measure(tile))
    return sums


def _begun(merger: SpanMerger, upper: Counts) -> list[Search]:
    # Bin 0 has the zeros; a spread below 2^-133 counts as 0.
    numel = upper[0, 1:].sum() if merger.method.spread else upper[0].sum()
    ranks = merger.method.ranks(int(numel), merger.recipe.settings)
    return [Search.begin(order, rank, counts) for order, counts in enumerate(upper) for rank in ranks]


def _open(searches: Sequence[Search]) -> list[Search]:
    return [search for search in searches if search.found is None]


def _searched(merger: SpanMerger, span: Span, tiles: _Tiles) -> list[Search]:
    """The searches of a tensor of one block, which is at hand: its tiles are made anew for each count."""
    searches = _begun(merger, _upper(merger, span, tiles))
    if left := _open(searches):
        places = {span.name: [(search.order, search.upper) for search in left]}
        for search, counts in zip(left, _lower(merger, places, span, tiles), strict=True):
            search.narrow(counts)
    if left := _open(searches):
        places = {span.name: [(search.order, search.code) for search in left]}
        for search, positions in zip(left, _equal(merger, places, span, tiles), strict=True):
            search.place(positions)
    return searches


def _upper(merger: SpanMerger, span: Span, tiles: _Tiles) -> Counts:
    """Counts of upper bits for each order, ``[orders, UPPER]``."""
    counts = np.zeros((merger.rankings, UPPER), np.int64)
    for tile in tiles():
        for update, own in zip(merger.ranked(tile), counts, strict=True):
            own += np.bincount(size_codes(update) >> np.uint32(16), minlength=UPPER)
    return counts


def _lower(merger: SpanMerger, places: _Places, span: Span, tiles: _Tiles) -> Counts:
    """Counts of lower bits for each search among the sizes with its upper bits, without zeros, ``[k, LOWER]``."""
    own = places.get(MODEL) or places.get(span.name, [])
    counts = np.zeros((len(own), LOWER), np.int64)
    for tile in tiles():
        ranked = merger.ranked(tile)
        for (order, upper), total in zip(own, counts, strict=True):
            count_lower(ranked[order], upper, total)
    return counts


def count_lower(update: Floats, upper: int, counts: Counts) -> None:
    """Add a tile to the counts of lower bits among sizes with these upper bits; no zeros."""
    codes = size_codes(update)
    chosen = codes >> np.uint32(16) == np.uint32(upper)
    if not upper:
        chosen &= codes != 0
    inside = codes[chosen]
    if inside.size:
        counts += np.bincount(inside & np.uint32(0xFFFF), minlength=LOWER)


def _equal(merger: SpanMerger, places: _Places, span: Span, tiles: _Tiles) -> list[Counts]:
    """Positions of the sizes with these bits, ascending, for each search."""
    parts: list[list[Counts]] = [[np.empty(0, np.int64)] for _ in places[span.name]]
    for tile in tiles():
        ranked = merger.ranked(tile)
        for (order, code), positions in zip(places[span.name], parts, strict=True):
            positions.append(np.flatnonzero(size_codes(ranked[order]) == np.uint32(code)) + tile.first)
    return [np.concatenate(positions) for positions in parts]


def _largest(counts: Counts, rank: int) -> tuple[int, int]:
    # Bins from the largest: the first whose running sum reaches the rank.
    running = np.cumsum(counts[::-1])
    at = int(np.searchsorted(running, rank))
    before = int(running[at - 1]) if at else 0
    return counts.size - 1 - at, rank - before
