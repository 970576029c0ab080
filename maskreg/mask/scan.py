"""The loops behind counts and draws. Each part is a loop over a tile of 4,096 coordinates that compiles to vectors.

Deciding coordinate by coordinate would take a branch each. Instead, a tile's random words are generated at once, then
borders are looked up, compared, and the few hits collected, in loops of their own without branches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.mask.philox import TILE, Key, tile_words

_COLUMNS = TILE // 4

Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


class Stream(NamedTuple):
    """Whose random words.

    Attributes:
        seed: 64 bits.
        tensor: 64 bits that stand for the tensor.
    """

    seed: Key
    tensor: Key


class Span(NamedTuple):
    """Coordinates of a tensor.

    Attributes:
        first: a multiple of 4,096.
        numel: how many.
        classes: uint16 ``[numel]``; empty when all are 0.
    """

    first: int
    numel: int
    classes: Classes


class Windows(NamedTuple):
    """Words ``[low, high)`` are inside; uint32 ``[classes]`` each."""

    low: Words
    high: Words


class Hits(NamedTuple):
    """Coordinates inside their windows.

    Attributes:
        places: int64 ``[m]``, counted from the span's first, ascending.
        words: uint32 ``[m]``, their words.
    """

    places: Counts
    words: Words


@kernel
def count(classes: Classes, packed: npt.NDArray[np.uint8], members: Counts, moved: Counts) -> None:
    """Count coordinates by class, and those of a mask.

    Args:
        classes: uint16 ``[n]``.
        packed: the mask's bits.
        members: int64 ``[classes]``, added to.
        moved: int64 ``[classes]``, likewise.
    """
    # Neighbors often share a class, and an increment waits for the store of the one before: four tables in turn.
    table = np.zeros((4, 2 * members.size), np.uint32)
    for i in range(classes.size):
        bit = (packed[i >> 3] >> np.uint8(i & 7)) & np.uint8(1)
        table[i & 3, (np.uint32(classes[i]) << np.uint32(1)) | np.uint32(bit)] += np.uint32(1)
    for k in range(members.size):
        for part in range(4):
            members[k] += table[part, 2 * k] + table[part, 2 * k + 1]
            moved[k] += table[part, 2 * k + 1]


@kernel
def mark(stream: Stream, span: Span, low: Words, drawn: npt.NDArray[np.uint8]) -> None:
    """Mark the coordinates whose words lie below their class's border.

    Args:
        stream: whose words.
        span: which coordinates.
        low: uint32 ``[classes]``, the borders.
        drawn: uint8 ``[numel]``, filled with 1 for those below, else 0.
    """
    tile = np.empty((4, _COLUMNS), np.uint32)
    words, borders = tile.reshape(-1), np.full(TILE, low[0], np.uint32)
    for start in range(0, drawn.size, TILE):
        tile_words(stream.seed, stream.tensor, 0, (span.first + start) // TILE, tile)
        if span.classes.size:
            _look_up(span.classes[start : start + TILE], low, borders)
        _below(words, borders, drawn[start : start + TILE])


@kernel
def scan(stream: Stream, span: Span, windows: Windows, by_class: bool, below: Counts, hits: Hits) -> int:
    """Count the words below their windows, and collect those inside; returns how many are inside.

    Args:
        stream: whose words.
        span: which coordinates.
        windows: by class.
        by_class: whether ``below`` must be counted by class; otherwise all counts go to class 0.
        below: int64 ``[4, classes]``, added to.
        hits: filled, with the first when there are more than fit.
    """
    tile = np.empty((4, _COLUMNS), np.uint32)
    words, drawn, marks = tile.reshape(-1), np.empty(TILE, np.uint8), np.empty(TILE, np.uint8)
    lows, highs = np.full(TILE, windows.low[0], np.uint32), np.full(TILE, windows.high[0], np.uint32)
    inside = 0
    for start in range(0, span.numel, TILE):
        tile_words(stream.seed, stream.tensor, 0, (span.first + start) // TILE, tile)
        tile_drawn = drawn[: min(TILE, span.numel - start)]
        classes = span.classes[start : start + TILE]
        if span.classes.size:
            _look_up(classes, windows.low, lows)
            _look_up(classes, windows.high, highs)
        total = _below(words, lows, tile_drawn)
        if by_class and span.classes.size:
            for i in range(tile_drawn.size):
                below[i & 3, classes[i]] += tile_drawn[i]
        else:
            below[0, 0] += total
        marks[tile_drawn.size :] = 0
        if _inside(words, lows, highs, marks[: tile_drawn.size]):
            inside = _collect(words, marks, start, inside, hits)
    return inside


@kernel
def second_words(stream: Stream, coordinates: Counts, seconds: Words) -> None:
    """Second words of a few coordinates.

    Args:
        stream: whose words.
        coordinates: int64 ``[m]``, ascending.
        seconds: uint32 ``[m]``, filled.
    """
    tile = np.empty((4, _COLUMNS), np.uint32)
    words = tile.reshape(-1)
    number = np.int64(-1)
    for i in range(coordinates.size):
        if coordinates[i] // TILE != number:
            number = coordinates[i] // TILE
            tile_words(stream.seed, stream.tensor, 1, number, tile)
        seconds[i] = words[coordinates[i] % TILE]


@kernel
def _look_up(classes: Classes, table: Words, borders: Words) -> None:
    for i in range(classes.size):
        borders[i] = table[classes[i]]


@kernel
def _below(words: Words, borders: Words, drawn: npt.NDArray[np.uint8]) -> int:
    total = np.uint32(0)
    for i in range(drawn.size):
        is_below = words[i] < borders[i]
        drawn[i] = np.uint8(is_below)
        total += np.uint32(is_below)
    return int(total)


@kernel
def _inside(words: Words, lows: Words, highs: Words, marks: npt.NDArray[np.uint8]) -> int:
    total = np.uint32(0)
    for i in range(marks.size):
        is_inside = (words[i] >= lows[i]) & (words[i] < highs[i])
        marks[i] = np.uint8(is_inside)
        total += np.uint32(is_inside)
    return int(total)


@kernel
def _collect(words: Words, marks: npt.NDArray[np.uint8], start: int, inside: int, hits: Hits) -> int:
    # Windows are narrow, so most groups of 8 marks are all 0: one comparison skips them.
    eights = marks.view(np.uint64)
    for j in range(eights.size):
        if eights[j]:
            for i in range(8 * j, 8 * j + 8):
                if marks[i]:
                    if inside < hits.places.size:
                        hits.places[inside], hits.words[inside] = start + i, words[i]
                    inside += 1
    return inside
