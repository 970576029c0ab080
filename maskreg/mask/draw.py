"""Drawing coordinates without replacement, exactly as many as wanted, in bounded memory.

Every coordinate has a random word of its own (see :mod:`maskreg.mask.philox`), and those with the smallest words are
drawn: whatever the order, the threads or the machine, the same ones. Classes of coordinates may weigh differently; then
it is word / weight that must be small, which draws each with a probability in proportion to its weight.

Where the border lies is known beforehand but for chance: some ten standard deviations around it are a *window*. One
pass counts what lies below the window and keeps what lies inside; the smallest of those complete the number. A window
that turns out too narrow is widened, and changes nothing but time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.mask.philox import TILE, tile_words

WORDS = 1 << 32
"""How many different words there are."""

_DEVIATIONS = 10.0
_WIDER = 8.0

Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Draw(NamedTuple):
    """What says which coordinates are drawn.

    Attributes:
        seed: 64 bits.
        low, high: uint64 ``[classes]``: words below ``low`` are drawn; those from there to ``high`` are in the window.
    """

    seed: int
    low: npt.NDArray[np.uint64]
    high: npt.NDArray[np.uint64]


class Seen(NamedTuple):
    """What one pass saw in one run of a tensor.

    Attributes:
        drawn: uint8 ``[n]``, 1 where the word lies below its class's window.
        below: int64 ``[classes]``, how many those are.
        places: int64 ``[m]``, coordinates inside their windows, counted from the run's first, in order.
        words: uint32 ``[m]``, their words.
        seconds: uint32 ``[m]``, their second words, which decide between equal ones.
        classes: uint16 ``[m]``, theirs.
    """

    drawn: npt.NDArray[np.uint8]
    below: Counts
    places: Counts
    words: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.uint32]
    classes: Classes


@kernel
def _look(
    seed: int,
    tensor: int,
    first: int,
    classes: Classes,
    low: npt.NDArray[np.uint64],
    high: npt.NDArray[np.uint64],
    drawn: npt.NDArray[np.uint8],
    below: Counts,
    places: Counts,
    found: npt.NDArray[np.uint32],
) -> int:
    """How many coordinates lie inside their windows; as many as fit are kept."""
    room = np.empty((4, TILE // 4), np.uint32)
    words = room.reshape(-1)
    inside = 0
    for start in range(0, drawn.size, TILE):
        tile_words(seed, tensor, 0, (first + start) // TILE, room)
        here, kinds = drawn[start : start + TILE], classes[start : start + TILE]
        near = 0
        for i in range(here.size):
            word = np.uint64(words[i])
            under = word < low[kinds[i]]
            here[i] = under
            below[kinds[i]] += under
            near += int(word < high[kinds[i]]) - int(under)
        if near:
            for i in range(here.size):
                if not here[i] and np.uint64(words[i]) < high[kinds[i]]:
                    if inside < places.size:
                        places[inside], found[inside] = start + i, words[i]
                    inside += 1
    return inside


@kernel
def _look_alike(
    seed: int,
    tensor: int,
    first: int,
    low: int,
    high: int,
    drawn: npt.NDArray[np.uint8],
    places: Counts,
    found: npt.NDArray[np.uint32],
) -> int:
    """The same where all coordinates are of one class."""
    room = np.empty((4, TILE // 4), np.uint32)
    words = room.reshape(-1)
    inside = 0
    for start in range(0, drawn.size, TILE):
        tile_words(seed, tensor, 0, (first + start) // TILE, room)
        here = drawn[start : start + TILE]
        near = 0
        for i in range(here.size):
            under = np.uint64(words[i]) < np.uint64(low)
            here[i] = under
            near += int((np.uint64(words[i]) < np.uint64(high)) ^ under)
        if near:
            for i in range(here.size):
                if not here[i] and np.uint64(words[i]) < np.uint64(high):
                    if inside < places.size:
                        places[inside], found[inside] = start + i, words[i]
                    inside += 1
    return inside


@kernel
def _second_words(seed: int, tensor: int, coordinates: Counts, seconds: npt.NDArray[np.uint32]) -> None:
    room = np.empty((4, TILE // 4), np.uint32)
    words = room.reshape(-1)
    tile = np.int64(-1)
    for i in range(coordinates.size):
        if coordinates[i] // TILE != tile:
            tile = coordinates[i] // TILE
            tile_words(seed, tensor, 1, tile, room)
        seconds[i] = words[coordinates[i] % TILE]


def look(draw: Draw, tensor: int, first: int, numel: int, classes: Classes | None = None) -> Seen:
    """One pass over coordinates ``[first, first + numel)`` of a tensor.

    Args:
        draw: what is drawn.
        tensor: 64 bits that stand for the tensor.
        first: a multiple of 4,096.
        numel: how many.
        classes: uint16 ``[numel]``; None where all are of class 0.

    Raises:
        ValueError: ``first`` is not such a multiple.
    """
    if first % TILE:
        raise ValueError(f"coordinate {first} is not at a multiple of {TILE}")
    drawn = np.empty(numel, np.uint8)
    below = np.zeros(draw.low.size, np.int64)
    room = 1 << 12
    while True:
        places, words = np.empty(room, np.int64), np.empty(room, np.uint32)
        if classes is None:
            low, high = int(draw.low[0]), int(draw.high[0])
            inside = _look_alike(draw.seed, tensor, first, low, high, drawn, places, words)
        else:
            below[:] = 0
            inside = _look(draw.seed, tensor, first, classes, draw.low, draw.high, drawn, below, places, words)
        if inside <= room:
            break
        room = inside
    if classes is None:
        below[0] = np.count_nonzero(drawn)
    places, words = places[:inside], words[:inside]
    seconds = np.empty(inside, np.uint32)
    _second_words(draw.seed, tensor, places + first, seconds)
    kinds = np.zeros(inside, np.uint16) if classes is None else classes[places]
    return Seen(drawn, below, places, words, seconds, kinds)


@dataclass(frozen=True)
class Quota:
    """How many coordinates are wanted, and how they share the number.

    Attributes:
        members: int64 ``[classes]``, coordinates of each class.
        weights: float64 ``[classes]``, 0 to 1: what a member's chance to be drawn is in proportion to, up to certainty.
        groups: int64 ``[classes]``: classes of one group share a number.
        wanted: int64 ``[groups]``, how many are drawn of each group.
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

    def draw(self, seed: int, widened: int = 0) -> Draw:
        """Windows around where the borders should lie.

        Args:
            seed: 64 bits.
            widened: how often they turned out too narrow.
        """
        scale = np.array([self._scale(group) for group in range(self.wanted.size)])[self.groups]
        chance = np.minimum(scale * self.weights, 1.0)
        spread, expected = (np.zeros(self.wanted.size) for _ in range(2))
        np.add.at(spread, self.groups, self.members * chance * (1 - chance))
        np.add.at(expected, self.groups, self.members * chance * (chance < 1))
        width = (_DEVIATIONS * np.sqrt(spread) + 20.0 * (spread > 0)) / np.maximum(expected, 1.0)
        width = (width * _WIDER**widened)[self.groups]
        centre = scale * self.weights * WORDS
        edges = [np.clip(np.floor(centre * factor), 0, WORDS) for factor in (np.maximum(1 - width, 0.0), 1 + width)]
        low, high = (edge.astype(np.uint64) for edge in edges)
        # What is wanted whole has no border, and what weighs nothing is never drawn.
        high[chance >= 1] = WORDS
        return Draw(seed, low, np.maximum(low, high))

    def _scale(self, group: int) -> float:
        """By what weights must be multiplied to become chances whose sum is the number wanted."""
        mine = self.groups == group
        members, weights, wanted = self.members[mine], self.weights[mine], float(self.wanted[group])
        if wanted == 0:
            return 0.0
        scale = wanted / max(float((members * weights).sum()), 1e-300)
        for _ in range(64):
            certain = scale * weights >= 1
            rest = float((members * weights)[~certain].sum())
            if rest <= 0:
                break
            better = (wanted - float(members[certain].sum())) / rest
            if abs(better - scale) <= 1e-12 * scale:
                break
            scale = better
        return scale


class Tally:
    """Puts together what passes saw, in any order, and says which coordinates of the windows are drawn."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._below = np.zeros(quota.members.size, np.int64)
        self._parts: list[tuple[int, int, Seen]] = []

    def add(self, tensor: int, first: int, seen: Seen) -> None:
        """Take in what was seen from coordinate ``first`` of a tensor on."""
        self._below += seen.below
        if seen.places.size:
            self._parts.append((tensor, first, seen._replace(drawn=seen.drawn[:0])))

    def settle(self) -> dict[int, Counts] | None:
        """The coordinates inside windows that are drawn, int64, in order, by tensor; None when windows are too narrow.

        Among equal words the second decides, then the tensor's 64 bits, then the place.
        """
        quota = self._quota
        missing = quota.wanted.copy()
        np.subtract.at(missing, quota.groups, self._below)
        tensors, places, words, seconds, classes = self._columns()
        groups = quota.groups[classes]
        if (missing < 0).any() or (missing > np.bincount(groups, minlength=missing.size)).any():
            return None
        ratios = words / np.maximum(quota.weights[classes], 1e-300)
        order = np.lexsort((places, tensors, seconds, ratios, groups))
        starts = np.searchsorted(groups[order], np.arange(missing.size))
        drawn = order[np.arange(order.size) - starts[groups[order]] < missing[groups[order]]]
        drawn = drawn[np.lexsort((places[drawn], tensors[drawn]))]
        names, firsts = np.unique(tensors[drawn], return_index=True)
        return {int(t): p for t, p in zip(names, np.split(places[drawn], firsts[1:]), strict=True)}

    def _columns(self) -> tuple[npt.NDArray[np.uint64], Counts, Floats, npt.NDArray[np.uint32], Classes]:
        parts = self._parts
        sizes = [seen.places.size for _, _, seen in parts]
        return (
            np.repeat(np.array([tensor for tensor, _, _ in parts], np.uint64), sizes),
            np.concatenate([np.empty(0, np.int64), *(seen.places + first for _, first, seen in parts)]),
            np.concatenate([np.empty(0), *(seen.words.astype(np.float64) for _, _, seen in parts)]),
            np.concatenate([np.empty(0, np.uint32), *(seen.seconds for _, _, seen in parts)]),
            np.concatenate([np.empty(0, np.uint16), *(seen.classes for _, _, seen in parts)]),
        )
