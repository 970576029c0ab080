"""Drawing coordinates without replacement, exactly as many as wanted, in bounded memory.

Every coordinate has a random word of its own (see :mod:`maskreg.mask.philox`), and those with the smallest words are
drawn: whatever the order, the threads or the machine, the same ones. Classes of coordinates may weigh differently; then
it is word / weight that must be small, which draws each with a probability in proportion to its weight.

Where the border lies is known beforehand but for chance: some standard deviations around it are a *window*. One
pass counts what lies below the window and keeps what lies inside; the smallest of those complete the number. A window
that turns out too narrow is widened, and changes nothing but time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import pack
from maskreg.mask.philox import TILE, WORDS
from maskreg.mask.scan import mark, scan, second_words

DEVIATIONS = 6.0
"""Half the width of a window, in standard deviations: one in 10^8 is too narrow."""

_WIDER = 8.0
_TINY = 1e-300

Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Borders = npt.NDArray[np.uint32]


class Draw(NamedTuple):
    """What says which coordinates are drawn.

    Attributes:
        seed: 64 bits.
        low, high: uint32 ``[classes]``: words below ``low`` are drawn; those from there to ``high`` are in the window.
        groups: int64 ``[classes]``: classes of one group share a number.
    """

    seed: int
    low: Borders
    high: Borders
    groups: Counts

    def look(self, tensor: int, first: int, numel: int, classes: Classes | None = None) -> Seen:
        """One pass over coordinates ``[first, first + numel)`` of a tensor.

        Args:
            tensor: 64 bits that stand for the tensor.
            first: a multiple of 4,096.
            numel: how many.
            classes: uint16 ``[numel]``; None where all are of class 0.

        Raises:
            ValueError: ``first`` is not such a multiple.
        """
        _check_first(first)
        kinds = np.empty(0, np.uint16) if classes is None else classes
        below = np.zeros((4, self.low.size), np.int64)
        several = bool(self.groups.any())
        room = (numel >> 6) + TILE
        seed, key = np.uint64(self.seed), np.uint64(tensor)
        while True:
            places, words = np.empty(room, np.int64), np.empty(room, np.uint32)
            below[:] = 0
            inside = scan(seed, key, first, numel, kinds, self.low, self.high, several, below, places, words)
            if inside <= room:
                break
            room = inside
        places, words = places[:inside] + first, words[:inside]
        seconds = np.empty(inside, np.uint32)
        second_words(seed, key, places, seconds)
        found = np.zeros(inside, np.uint16) if classes is None else classes[places - first]
        by_group = np.zeros(int(self.groups.max(initial=0)) + 1, np.int64)
        np.add.at(by_group, self.groups, below.sum(axis=0))
        return Seen(tensor, by_group, places, words, seconds, found)

    def packed(
        self, tensor: int, first: int, numel: int, completed: Counts, classes: Classes | None = None
    ) -> npt.NDArray[np.uint8]:
        """Packed bits of the coordinates that are drawn among ``[first, first + numel)`` of a tensor.

        Args:
            tensor: 64 bits that stand for the tensor.
            first: a multiple of 4,096.
            numel: how many.
            completed: int64, in order: the drawn coordinates of the windows of the whole tensor.
            classes: uint16 ``[numel]``; None where all are of class 0.

        Raises:
            ValueError: ``first`` is not such a multiple.
        """
        _check_first(first)
        drawn = np.empty(numel, np.uint8)
        kinds = np.empty(0, np.uint16) if classes is None else classes
        mark(np.uint64(self.seed), np.uint64(tensor), first, kinds, self.low, drawn)
        start, stop = np.searchsorted(completed, [first, first + numel])
        drawn[completed[start:stop] - first] = 1
        return pack(drawn.view(np.bool_))


class Seen(NamedTuple):
    """What one pass saw in one run of a tensor.

    Attributes:
        tensor: 64 bits that stand for it.
        below: int64 ``[groups]``, how many words lie below their class's window.
        places: int64 ``[m]``, coordinates inside their windows, in order.
        words: uint32 ``[m]``, their words.
        seconds: uint32 ``[m]``, their second words, which decide between equal ones.
        classes: uint16 ``[m]``, theirs.
    """

    tensor: int
    below: Counts
    places: Counts
    words: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.uint32]
    classes: Classes


@dataclass(frozen=True)
class Quota:
    """How many coordinates are wanted, and how they share the number.

    Attributes:
        members: int64 ``[classes]``, coordinates of each class.
        weights: float64 ``[classes]``, 0 to 1: what a member's chance to be drawn is in proportion to, up to certainty.
        groups: int64 ``[classes]``: classes of one group share a number.
        wanted: int64 ``[groups]``, how many are drawn of each group; no more than members that weigh anything.
    """

    members: Counts
    weights: Floats
    groups: Counts
    wanted: Counts

    @classmethod
    def by_class(cls, members: Counts, wanted: Counts) -> Quota:
        """Every class has its own number, and its members the same chance."""
        shares = np.divide(wanted, members, out=np.zeros(members.size), where=members > 0)
        return cls(members, shares, np.arange(members.size), wanted)

    @classmethod
    def of_all(cls, members: Counts, weights: Floats, wanted: int) -> Quota:
        """All classes together have one number."""
        return cls(members, weights, np.zeros(members.size, np.int64), np.array([wanted]))

    def draw(self, seed: int, widened: int = 0, deviations: float = DEVIATIONS) -> Draw:
        """Windows around where the borders should lie.

        Args:
            seed: 64 bits.
            widened: how often they turned out too narrow.
            deviations: half their width before that, in standard deviations; does not change what is drawn.

        Raises:
            ValueError: more are wanted of a group than weigh anything.
        """
        scale = self._scales()[self.groups]
        chance = np.minimum(scale * self.weights, 1.0)
        spread, expected = (np.zeros(self.wanted.size) for _ in range(2))
        np.add.at(spread, self.groups, self.members * chance * (1 - chance))
        np.add.at(expected, self.groups, self.members * chance * (chance < 1))
        width = (deviations * np.sqrt(spread) + 2 * deviations * (spread > 0)) / np.maximum(expected, 1.0)
        width = (width * _WIDER**widened)[self.groups]
        center = scale * self.weights * WORDS
        low = np.clip(np.ceil(center * np.maximum(1 - width, 0.0)), 0, WORDS)
        high = np.clip(np.ceil(center * (1 + width)), 0, WORDS)
        # What is wanted whole has no border, and what weighs nothing is never drawn.
        high[chance >= 1] = WORDS
        return Draw(seed, low.astype(np.uint32), np.maximum(low, high).astype(np.uint32), self.groups)

    def _scales(self) -> Floats:
        """By what weights must be multiplied to become chances whose sums are the numbers wanted, by group."""
        here = np.bincount(self.groups, weights=self.members, minlength=self.wanted.size) + self.wanted
        return np.array([self._scale(group) if here[group] else 0.0 for group in range(self.wanted.size)])

    def _scale(self, group: int) -> float:
        mine = (self.groups == group) & (self.weights > 0)
        members, weights, wanted = self.members[mine], self.weights[mine], int(self.wanted[group])
        if wanted > members.sum():
            raise ValueError(f"{wanted} are wanted of {members.sum()}")
        if wanted == 0:
            return 0.0
        if wanted == members.sum():
            return 2.0 / float(weights.min())
        certain = np.zeros(members.size, np.bool_)
        while True:
            rest = float((members * weights)[~certain].sum())
            scale = (wanted - float(members[certain].sum())) / max(rest, _TINY)
            more = scale * weights >= 1
            # With each that is certain, less is left to the others, and the scale grows.
            if not (more & ~certain).any():
                return scale
            certain |= more


class Tally:
    """Puts together what passes saw, in any order, and says which coordinates of the windows are drawn."""

    def __init__(self, quota: Quota, draw: Draw) -> None:
        """Start with nothing seen."""
        self._quota = quota
        self._draw = draw
        self._below = np.zeros(quota.wanted.size, np.int64)
        self._seen: list[Seen] = []

    def add(self, seen: Seen) -> None:
        """Take in what one pass saw."""
        self._below += seen.below
        if seen.places.size:
            self._seen.append(seen)

    def settle(self) -> dict[int, Counts] | None:
        """The coordinates inside windows that are drawn, int64, in order, by tensor; None when windows are too narrow.

        Among equal words the second decides, then the tensor's 64 bits, then the place.
        """
        quota = self._quota
        missing = quota.wanted - self._below
        tensors, places, words, seconds, classes = self._columns()
        groups = quota.groups[classes]
        if (missing < 0).any() or (missing > np.bincount(groups, minlength=missing.size)).any():
            return None
        ratios = words / np.maximum(quota.weights[classes], _TINY)
        order = np.lexsort((places, tensors, seconds, ratios, groups))
        starts = np.searchsorted(groups[order], np.arange(missing.size))
        drawn = np.arange(order.size) - starts[groups[order]] < missing[groups[order]]
        if self._passed_over(groups[order], ratios[order], drawn):
            return None
        chosen = order[drawn]
        chosen = chosen[np.lexsort((places[chosen], tensors[chosen]))]
        names, firsts = np.unique(tensors[chosen], return_index=True)
        ends = np.append(firsts[1:], chosen.size)[: names.size]
        return {int(t): places[chosen[i:j]] for t, i, j in zip(names, firsts, ends, strict=True)}

    def _passed_over(self, groups: Counts, ratios: Floats, drawn: npt.NDArray[np.bool_]) -> bool:
        """Whether a coordinate outside the windows may come before one that is drawn inside, or the reverse."""
        quota, low, high = self._quota, self._draw.low, self._draw.high
        weights = np.maximum(quota.weights, _TINY)
        under, above = np.full(quota.wanted.size, -1.0), np.full(quota.wanted.size, np.inf)
        some = (low > 0) & (quota.members > 0)
        np.maximum.at(under, quota.groups[some], (low[some] - 1.0) / weights[some])
        some = (high < WORDS) & (quota.members > 0) & (quota.weights > 0)
        np.minimum.at(above, quota.groups[some], high[some] / weights[some])
        return bool((ratios[drawn] >= above[groups[drawn]]).any() or (ratios[~drawn] <= under[groups[~drawn]]).any())

    def _columns(self) -> tuple[npt.NDArray[np.uint64], Counts, Floats, npt.NDArray[np.uint32], Classes]:
        seen = self._seen
        return (
            np.repeat(np.array([s.tensor for s in seen], np.uint64), [s.places.size for s in seen]),
            np.concatenate([np.empty(0, np.int64), *(s.places for s in seen)]),
            np.concatenate([np.empty(0), *(s.words.astype(np.float64) for s in seen)]),
            np.concatenate([np.empty(0, np.uint32), *(s.seconds for s in seen)]),
            np.concatenate([np.empty(0, np.uint16), *(s.classes for s in seen)]),
        )


def _check_first(first: int) -> None:
    if first % TILE:
        raise ValueError(f"coordinate {first} is not at a multiple of {TILE}")
