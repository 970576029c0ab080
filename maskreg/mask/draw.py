"""Drawing coordinates without replacement, an exact number of them, in bounded memory.

Every coordinate has a random number r in (0, 1) of its own (:mod:`maskreg.mask.philox`) and a class with a chance p. Of
all coordinates, the n with the smallest q are drawn::

    q = r / (1 - r) / (p / (1 - p))         r < p  <=>  q < 1

So the result depends on nothing but seed and tensor: not on order, threads or machine. Where the chances add up to n,
about n coordinates have q < 1. Moving that border until there are exactly n changes the number of each class in
proportion to its variance, p (1 - p), as the condition that there be n changes independent draws. This is Pareto
sampling (B. Rosen, "On sampling with probability proportional to size", J. Stat. Plan. Inference 62, 1997): a
coordinate's chance to be drawn is p but for a share of the order of 1 / n. Sorting all q would take memory; but where
the border lies is known beforehand, but for chance:

    border        the r of each class at which as many are expected below as are to be drawn
    window        the border and some standard deviations to both sides: [low, high), in words of 31 bits

    pass 1        Draw.look, span by span: count the words below low; keep those inside the window
    settle        draw the smallest q of those kept, as many as are missing
                  too few kept, or too many below: widen the windows 8 times and repeat pass 1
    pass 2        Draw.packed, span by span: words below low are drawn, and those that settle added

    2,500 of 10,000, one class: border .25 * 2^31, standard deviation sqrt(10,000 * .25 * .75) = 43 coordinates, so the
    window reaches 6 * 43 + 12 = 272 coordinates to both sides: .224 to .278. Say 2,239 words lie below and 541 inside:
    the 261 smallest of these are drawn too.

How wide the windows are only changes the time: which coordinates have the smallest q does not depend on it. Groups of
classes, each with its own number, are drawn in the same passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import packed_bytes
from maskreg.mask.philox import TILE, WORDS
from maskreg.native import Library, library

DEVIATIONS = 6.0
"""Half the width of a window, in standard deviations: one in 10^8 windows is too narrow."""

_WIDER = 8.0
_WIDEST = 200.0
_TINY = 1e-300
_NEARLY_CERTAIN = 1 - 2.0**-33

MAX_CLASSES = 512
"""Classes that can be counted at once."""

Bits = npt.NDArray[np.uint8]
Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


# Deciding coordinate by coordinate would take a branch each. Instead, the kernels generate the words of a tile of 4,096
# coordinates at once, then look up borders, compare, and collect the few hits, in loops of their own without branches:
# native/src/draws.c.


class Stream(NamedTuple):
    """Whose random words: 64 bits of the seed, and 64 that stand for the tensor."""

    seed: int
    tensor: int


class Span(NamedTuple):
    """Coordinates of a tensor, from a multiple of 4,096 on; and their classes, None when all are 0."""

    first: int
    numel: int
    classes: Classes | None


class Windows(NamedTuple):
    """Words ``[low, high)`` are inside; uint32 ``[classes]`` each."""

    low: Words
    high: Words


class Hits(NamedTuple):
    """Coordinates inside their windows, counted from the span's first, int64 ascending; and their words."""

    places: Counts
    words: Words


def count(classes: Classes, packed: Bits, members: Counts, moved: Counts) -> None:
    """Add coordinates, all and the mask's, to their counts by class, int64 ``[classes]``, no more than 512."""
    if members.size > MAX_CLASSES or members.size != moved.size or packed.size != packed_bytes(classes.size):
        raise ValueError(f"{members.size} classes, {classes.size} coordinates and {packed.size} bytes do not match")
    compiled = library()
    compiled.lib.maskreg_count_classes(
        compiled.read(classes), classes.size, compiled.read(packed),
        members.size, compiled.write(members), compiled.write(moved),
    )  # fmt: skip


def mark(stream: Stream, span: Span, low: Words) -> Bits:
    """Packed bits of the coordinates whose words lie below their class's border."""
    compiled = library()
    packed = np.empty(packed_bytes(span.numel), np.uint8)
    structure, _arrays = _structure(compiled, stream, span)
    compiled.lib.maskreg_mark_drawn(structure, compiled.read(low), compiled.write(packed))
    return packed


def scan(stream: Stream, span: Span, windows: Windows, below: Counts, hits: Hits) -> int:
    """Count the words below their windows, and collect those inside; returns how many are inside.

    Counts are added by class, or all together to a single one. Hits are the first when there are more than fit.
    """
    if below.size > MAX_CLASSES:
        raise ValueError(f"{below.size} classes are more than {MAX_CLASSES}")
    compiled = library()
    structure, _arrays = _structure(compiled, stream, span)
    arrays = [compiled.write(array) for array in hits]
    collected = compiled.ffi.new("maskreg_hits *", (hits.places.size, *arrays))
    low, high = (compiled.read(side) for side in windows)
    total: int = compiled.lib.maskreg_scan_words(
        structure, low, high, below.size, compiled.write(below), collected
    )  # fmt: skip
    return total


def second_words(stream: Stream, coordinates: Counts) -> Words:
    """Second words of a few coordinates, uint32 ``[m]``."""
    seconds = np.empty(coordinates.size, np.uint32)
    compiled = library()
    compiled.lib.maskreg_second_words(*stream, compiled.read(coordinates), seconds.size, compiled.write(seconds))
    return seconds


def _structure(compiled: Library, stream: Stream, span: Span) -> tuple[Any, Any]:
    """``maskreg_span`` of kernels.h, and what has to live as long as it."""
    classes = compiled.ffi.NULL if span.classes is None else compiled.read(span.classes)
    return compiled.ffi.new("maskreg_span *", (*stream, span.first, span.numel, classes)), classes


class Draw(NamedTuple):
    """Windows around the borders below which coordinates are drawn.

    Attributes:
        seed: 64 bits.
        low, high: uint32 ``[classes]``: words below ``low`` are drawn; those in ``[low, high)`` are in the window.
        groups: int64 ``[classes]``: classes of one group share a number.
    """

    seed: int
    low: Words
    high: Words
    groups: Counts

    def look(self, tensor: int, first: int, numel: int, classes: Classes | None = None) -> Seen:
        """Pass 1 over coordinates ``[first, first + numel)`` of a tensor, for which 64 bits stand.

        The first is a multiple of 4,096; classes are uint16 ``[numel]``, None when all are 0.
        """
        _check_first(first)
        stream, span, windows = Stream(self.seed, tensor), Span(first, numel, classes), Windows(self.low, self.high)
        # Where there is one group, classes need not be told apart.
        groups = self.groups if self.groups.any() else np.zeros(1, np.int64)
        room = (numel >> 6) + TILE
        while True:
            below = np.zeros(groups.size, np.int64)
            hits = Hits(np.empty(room, np.int64), np.empty(room, np.uint32))
            inside = scan(stream, span, windows, below, hits)
            if inside <= room:
                break
            room = inside
        places, words = hits.places[:inside], hits.words[:inside]
        kinds = np.zeros(inside, np.uint16) if classes is None else classes[places]
        places = places + first
        by_group = np.zeros(int(groups.max()) + 1, np.int64)
        np.add.at(by_group, groups, below)
        return Seen(tensor, by_group, places, words, second_words(stream, places), kinds)

    def packed(
        self, tensor: int, first: int, numel: int, completed: Counts, classes: Classes | None = None
    ) -> npt.NDArray[np.uint8]:
        """Pass 2: packed bits of the same, 1 for those drawn.

        ``completed`` are those drawn inside the windows, int64 ascending, of the whole tensor.
        """
        _check_first(first)
        packed = mark(Stream(self.seed, tensor), Span(first, numel, classes), self.low)
        start, stop = np.searchsorted(completed, [first, first + numel])
        places = completed[start:stop] - first
        # Several can be in one byte.
        np.bitwise_or.at(packed, places >> 3, np.uint8(1) << (places & 7).astype(np.uint8))
        return packed


class Seen(NamedTuple):
    """What pass 1 saw in a span of a tensor.

    Attributes:
        below: int64 ``[groups]``, how many words lie below their windows.
        places, words, seconds, classes: coordinates inside their windows, int64 ``[m]`` ascending; their words, uint32;
            their second words, which break ties; and their classes, uint16.
    """

    tensor: int
    below: Counts
    places: Counts
    words: Words
    seconds: Words
    classes: Classes


@dataclass(frozen=True)
class Quota:
    """How many coordinates to draw, and from which classes.

    Attributes:
        members: int64 ``[classes]``, coordinates of each class.
        chances: float64 ``[classes]``, 0 to 1: of a member to be drawn, if the group's number were not fixed. Members
            with chance 0 are never drawn.
        groups: int64 ``[classes]``: classes of one group share a number.
        sizes: int64 ``[groups]``, how many to draw of each group; no more than it has members of chance above 0.
    """

    members: Counts
    chances: Floats
    groups: Counts
    sizes: Counts

    @classmethod
    def by_class(cls, members: Counts, sizes: Counts) -> Quota:
        """A number for each class."""
        shares = np.divide(sizes, members, out=np.zeros(members.size), where=members > 0)
        return cls(members, shares, np.arange(members.size), sizes)

    @classmethod
    def of_all(cls, members: Counts, chances: Floats, size: int) -> Quota:
        """One number for all classes together."""
        return cls(members, chances, np.zeros(members.size, np.int64), np.array([size]))

    @property
    def odds(self) -> Floats:
        """Odds of each class, float64 ``[classes]``, finite: a chance of 1 counts as 1 - 2^-33."""
        chances = np.minimum(self.chances, _NEARLY_CERTAIN)
        odds: Floats = chances / (1 - chances)
        return odds

    def draw(self, seed: int, widened: int = 0, deviations: float = DEVIATIONS) -> Draw:
        """Windows around the expected borders, which have turned out too narrow so often.

        How wide they begin, in standard deviations, does not change what is drawn.
        """
        borders = self._borders()
        spread = np.zeros(self.sizes.size)
        np.add.at(spread, self.groups, self.members * borders * (1 - borders))
        # A factor on the odds moves the expected number by the spread.
        width = deviations / np.sqrt(np.maximum(spread, _TINY)) + 2 * deviations / np.maximum(spread, _TINY)
        factor = np.exp(np.minimum(width * _WIDER**widened, _WIDEST))[self.groups]
        uncertain = (borders > 0) & (borders < 1)
        odds = np.divide(borders, 1 - borders, out=np.zeros(borders.size), where=uncertain)
        low, high = (WORDS * side / (1 + side) for side in (odds / factor, odds * factor))
        low = np.where(uncertain, np.floor(low), WORDS * borders)
        high = np.where(uncertain, np.ceil(high), WORDS * borders)
        return Draw(seed, low.astype(np.uint32), high.astype(np.uint32), self.groups)

    def _borders(self) -> Floats:
        """The r of each class at which as many of its group are expected below as are to be drawn, 0 to 1."""
        possible = np.where(self.chances > 0, self.members, 0)
        present = np.bincount(self.groups, weights=possible, minlength=self.sizes.size)
        if (short := self.sizes > present).any():
            group = int(np.argmax(short))
            raise ValueError(f"cannot draw {self.sizes[group]} of {int(present[group])}")
        shares = np.divide(self.sizes, present, out=np.zeros(present.size), where=present > 0)
        borders: Floats = np.where(self.chances > 0, shares[self.groups], 0.0)
        several = np.bincount(self.groups[possible > 0], minlength=present.size) > 1
        for group in np.flatnonzero(several & (shares > 0) & (shares < 1)).tolist():
            own = np.flatnonzero((self.groups == group) & (possible > 0))
            borders[own] = _expecting(int(self.sizes[group]), self.members[own], np.log(self.odds[own]))
        return borders


def _expecting(size: int, members: Counts, logits: Floats) -> Floats:
    """Chances with these log odds, moved by one term, that expect ``size``; close enough for a window."""
    low, high = -_WIDEST, _WIDEST
    for _ in range(64):
        middle = (low + high) / 2
        chances = 1 / (1 + np.exp(-(logits + middle)))
        low, high = (middle, high) if members @ chances < size else (low, middle)
    return chances


class Tally:
    """Collects what pass 1 saw, in any order, and settles which coordinates inside the windows are drawn."""

    def __init__(self, quota: Quota, draw: Draw) -> None:
        """Start with nothing seen."""
        self._quota = quota
        self._draw = draw
        self._below = np.zeros(quota.sizes.size, np.int64)
        self._seen: list[Seen] = []

    def add(self, seen: Seen) -> None:
        """Add what was seen in one span."""
        self._below += seen.below
        if seen.places.size:
            self._seen.append(seen)

    def settle(self) -> dict[int, Counts] | None:
        """Drawn coordinates inside the windows, int64, ascending, by tensor; None when the windows are too narrow.

        Ties are broken by the second word, then by the tensor's 64 bits, then by the coordinate.
        """
        quota = self._quota
        missing = quota.sizes - self._below
        seen = self._seen
        tensors = np.repeat(np.array([s.tensor for s in seen], np.uint64), [s.places.size for s in seen])
        places = np.concatenate([np.empty(0, np.int64), *(s.places for s in seen)])
        words = np.concatenate([np.empty(0, np.uint32), *(s.words for s in seen)])
        seconds = np.concatenate([np.empty(0, np.uint32), *(s.seconds for s in seen)])
        classes = np.concatenate([np.empty(0, np.uint16), *(s.classes for s in seen)])
        groups = quota.groups[classes]
        if (missing < 0).any() or (missing > np.bincount(groups, minlength=missing.size)).any():
            return None
        ratios = _odds(words, seconds) / np.maximum(quota.odds, _TINY)[classes]
        drawn = np.zeros(places.size, np.bool_)
        by_group = np.argsort(groups.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(groups, minlength=missing.size))
        for own, size in zip(np.split(by_group, ends[:-1]), missing.tolist(), strict=True):
            drawn[own] = _smallest(size, ratios[own], (places[own], tensors[own], seconds[own]))
        if self._passed_over(groups, ratios, drawn):
            return None
        chosen = np.flatnonzero(drawn)
        chosen = chosen[np.lexsort((places[chosen], tensors[chosen]))]
        names, firsts = np.unique(tensors[chosen], return_index=True)
        ends = np.append(firsts[1:], chosen.size)[: names.size]
        return {int(t): places[chosen[i:j]] for t, i, j in zip(names, firsts, ends, strict=True)}

    def _passed_over(self, groups: Counts, ratios: Floats, drawn: npt.NDArray[np.bool_]) -> bool:
        """Whether the order of q is violated across a window's edge: then the windows are too narrow.

        With several classes, windows end at different q. A coordinate just above one class's window can be smaller than
        one that was drawn inside another's, and one just below larger than one that was not drawn.
        """
        quota = self._quota
        low, high = self._draw.low.astype(np.float64), self._draw.high.astype(np.float64)
        odds = np.maximum(quota.odds, _TINY)
        below, above = np.full(quota.sizes.size, -1.0), np.full(quota.sizes.size, np.inf)
        some = (low > 0) & (low < WORDS) & (quota.members > 0)
        np.maximum.at(below, quota.groups[some], low[some] / (WORDS - low[some]) / odds[some])
        some = (high < WORDS) & (quota.members > 0) & (quota.chances > 0)
        np.minimum.at(above, quota.groups[some], high[some] / (WORDS - high[some]) / odds[some])
        return bool((ratios[drawn] >= above[groups[drawn]]).any() or (ratios[~drawn] <= below[groups[~drawn]]).any())


def _smallest(
    size: int, ratios: Floats, ties: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
) -> npt.NDArray[np.bool_]:
    """Which are the ``size`` smallest; equal ones come in the order of ``ties``, the last of which counts most."""
    if size == ratios.size:
        return np.ones(size, np.bool_)
    # Only those at the border have to be sorted, usually one.
    border = np.partition(ratios, size)[size]
    smallest: npt.NDArray[np.bool_] = ratios < border
    equal = np.flatnonzero(ratios == border)
    order = np.lexsort(tuple(key[equal] for key in ties))
    smallest[equal[order[: size - np.count_nonzero(smallest)]]] = True
    return smallest


def _odds(words: Words, seconds: Words) -> Floats:
    """r / (1 - r), with ``r = (2^31 word + second + 1/2) / 2^62``."""
    r = (words.astype(np.uint64) << np.uint64(32)) + (seconds.astype(np.uint64) << np.uint64(1)) + np.uint64(1)
    return r.astype(np.float64) / (np.uint64(1 << 63) - r).astype(np.float64)


def _check_first(first: int) -> None:
    if first % TILE:
        raise ValueError(f"coordinate {first} is not a multiple of {TILE}")
