"""Drawing coordinates without replacement, an exact number of them, in bounded memory.

Every coordinate has a random word r in [0, 2^31) of its own (:mod:`maskreg.mask.philox`) and a class with a weight w.
Those with the smallest r / w are drawn. So the result depends on nothing but seed and tensor: not on order, threads or
machine. And a coordinate's chance is proportional to its weight, up to certainty.

Sorting all r / w would take memory; but where the border lies is known beforehand, but for chance:

    scale s       such that sum over classes of members * min(1, s w) is the number to draw
    border        s w 2^31, by class; words below it would be drawn, on average as many as they should be
    window        the border and some standard deviations to both sides: [low, high)

    pass 1        Draw.look, span by span: count the words below low; keep those inside the window
    settle        draw the smallest r / w of those kept, as many as are missing
                  too few kept, or too many below: widen the windows 8 times and repeat pass 1
    pass 2        Draw.packed, span by span: words below low are drawn, and those that settle added

    2,500 of 10,000, one class: border 0.25 * 2^31, standard deviation sqrt(10,000 * .25 * .75) = 43 coordinates, so the
    window is 0.25 * (1 +- (6 * 43 + 12) / 2,500) = 0.223 to 0.277. Say 2,231 words lie below and 541 inside: the
    269 smallest of these are drawn too.

How wide the windows are only changes the time: which coordinates have the smallest r / w does not depend on it. Groups
of classes, each with its own number, are drawn in the same passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.philox import TILE, WORDS
from maskreg.mask.scan import Hits, Span, Stream, Windows, mark, scan, second_words

DEVIATIONS = 6.0
"""Half the width of a window, in standard deviations: one in 10^8 windows is too narrow."""

_WIDER = 8.0
_TINY = 1e-300

Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Borders = npt.NDArray[np.uint32]


class Draw(NamedTuple):
    """Windows around the borders below which coordinates are drawn.

    Attributes:
        seed: 64 bits.
        low, high: uint32 ``[classes]``: words below ``low`` are drawn; those in ``[low, high)`` are in the window.
        groups: int64 ``[classes]``: classes of one group share a number.
    """

    seed: int
    low: Borders
    high: Borders
    groups: Counts

    def look(self, tensor: int, first: int, numel: int, classes: Classes | None = None) -> Seen:
        """Pass 1 over coordinates ``[first, first + numel)`` of a tensor.

        Args:
            tensor: 64 bits that stand for the tensor.
            first: a multiple of 4,096.
            numel: coordinates in the span.
            classes: uint16 ``[numel]``; None when all are 0.

        Raises:
            ValueError: ``first`` is not a multiple of 4,096.
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
        """Pass 2: packed bits of coordinates ``[first, first + numel)`` of a tensor, 1 for those drawn.

        Args:
            tensor: 64 bits that stand for the tensor.
            first: a multiple of 4,096.
            numel: coordinates in the span.
            completed: int64, ascending: those drawn inside the windows, of the whole tensor.
            classes: uint16 ``[numel]``; None when all are 0.

        Raises:
            ValueError: ``first`` is not a multiple of 4,096.
        """
        _check_first(first)
        packed = mark(Stream(self.seed, tensor), Span(first, numel, classes), self.low)
        start, stop = np.searchsorted(completed, [first, first + numel])
        places = completed[start:stop] - first
        # Several may be in one byte.
        np.bitwise_or.at(packed, places >> 3, np.uint8(1) << (places & 7).astype(np.uint8))
        return packed


class Seen(NamedTuple):
    """What pass 1 saw in a span of a tensor.

    Attributes:
        tensor: 64 bits that stand for it.
        below: int64 ``[groups]``, how many words lie below their windows.
        places: int64 ``[m]``, coordinates inside their windows, ascending.
        words: uint32 ``[m]``, their words.
        seconds: uint32 ``[m]``, their second words, which break ties.
        classes: uint16 ``[m]``, their classes.
    """

    tensor: int
    below: Counts
    places: Counts
    words: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.uint32]
    classes: Classes


@dataclass(frozen=True)
class Quota:
    """How many coordinates to draw, and from which classes.

    Attributes:
        members: int64 ``[classes]``, coordinates of each class.
        weights: float64 ``[classes]``, 0 to 1: a member's chance is proportional to it, up to certainty.
        groups: int64 ``[classes]``: classes of one group share a number.
        sizes: int64 ``[groups]``, how many to draw of each group; no more than it has members of weight above 0.
    """

    members: Counts
    weights: Floats
    groups: Counts
    sizes: Counts

    @classmethod
    def by_class(cls, members: Counts, sizes: Counts) -> Quota:
        """A number for each class."""
        shares = np.divide(sizes, members, out=np.zeros(members.size), where=members > 0)
        return cls(members, shares, np.arange(members.size), sizes)

    @classmethod
    def of_all(cls, members: Counts, weights: Floats, size: int) -> Quota:
        """One number for all classes together."""
        return cls(members, weights, np.zeros(members.size, np.int64), np.array([size]))

    def draw(self, seed: int, widened: int = 0, deviations: float = DEVIATIONS) -> Draw:
        """Windows around the expected borders.

        Args:
            seed: 64 bits.
            widened: how often they have turned out too narrow.
            deviations: half their width before that, in standard deviations; it does not change what is drawn.

        Raises:
            ValueError: a group has fewer members of weight above 0 than are to be drawn.
        """
        scale = self._scales()[self.groups]
        chance = np.minimum(scale * self.weights, 1.0)
        spread, expected = (np.zeros(self.sizes.size) for _ in range(2))
        np.add.at(spread, self.groups, self.members * chance * (1 - chance))
        np.add.at(expected, self.groups, self.members * chance * (chance < 1))
        width = (deviations * np.sqrt(spread) + 2 * deviations * (spread > 0)) / np.maximum(expected, 1.0)
        width = (width * _WIDER**widened)[self.groups]
        center = scale * self.weights * WORDS
        low = np.clip(np.ceil(center * np.maximum(1 - width, 0.0)), 0, WORDS)
        high = np.clip(np.ceil(center * (1 + width)), 0, WORDS)
        # A class that is drawn whole has no border; one of weight 0 is never drawn, as its border is 0.
        high[chance >= 1] = WORDS
        return Draw(seed, low.astype(np.uint32), np.maximum(low, high).astype(np.uint32), self.groups)

    def _scales(self) -> Floats:
        """Factor per group that turns weights into chances, whose sums are the numbers to draw."""
        present = np.bincount(self.groups, weights=self.members, minlength=self.sizes.size) + self.sizes
        return np.array([self._scale(group) if present[group] else 0.0 for group in range(self.sizes.size)])

    def _scale(self, group: int) -> float:
        own = (self.groups == group) & (self.weights > 0)
        members, weights, size = self.members[own], self.weights[own], int(self.sizes[group])
        if size > members.sum():
            raise ValueError(f"cannot draw {size} of {members.sum()}")
        if size == 0:
            return 0.0
        if size == members.sum():
            return 2.0 / float(weights.min())
        certain = np.zeros(members.size, np.bool_)
        while True:
            rest = float((members * weights)[~certain].sum())
            scale = (size - float(members[certain].sum())) / max(rest, _TINY)
            more = scale * weights >= 1
            # A class that becomes certain takes less than its weight says, so the scale of the others grows: repeat.
            if not (more & ~certain).any():
                return scale
            certain |= more


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
        tensors, places, words, seconds, classes = self._columns()
        groups = quota.groups[classes]
        if (missing < 0).any() or (missing > np.bincount(groups, minlength=missing.size)).any():
            return None
        ratios = words / np.maximum(quota.weights[classes], _TINY)
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
        """Whether the order of r / w is violated across a window's edge: then the windows are too narrow.

        With several classes, windows end at different r / w. A coordinate just above one class's window may be smaller
        than one that was drawn inside another's, and one just below larger than one that was not drawn.
        """
        quota, low, high = self._quota, self._draw.low, self._draw.high
        weights = np.maximum(quota.weights, _TINY)
        below, above = np.full(quota.sizes.size, -1.0), np.full(quota.sizes.size, np.inf)
        some = (low > 0) & (quota.members > 0)
        np.maximum.at(below, quota.groups[some], (low[some] - 1.0) / weights[some])
        some = (high < WORDS) & (quota.members > 0) & (quota.weights > 0)
        np.minimum.at(above, quota.groups[some], high[some] / weights[some])
        return bool((ratios[drawn] >= above[groups[drawn]]).any() or (ratios[~drawn] <= below[groups[~drawn]]).any())

    def _columns(self) -> tuple[npt.NDArray[np.uint64], Counts, Floats, npt.NDArray[np.uint32], Classes]:
        seen = self._seen
        return (
            np.repeat(np.array([s.tensor for s in seen], np.uint64), [s.places.size for s in seen]),
            np.concatenate([np.empty(0, np.int64), *(s.places for s in seen)]),
            np.concatenate([np.empty(0), *(s.words.astype(np.float64) for s in seen)]),
            np.concatenate([np.empty(0, np.uint32), *(s.seconds for s in seen)]),
            np.concatenate([np.empty(0, np.uint16), *(s.classes for s in seen)]),
        )


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


def _check_first(first: int) -> None:
    if first % TILE:
        raise ValueError(f"coordinate {first} is not a multiple of {TILE}")
