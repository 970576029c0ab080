"""The loops over coordinates behind counts and draws, written so that each becomes vector instructions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.mask.philox import TILE, Key, tile_words

_COLUMNS = TILE // 4

Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@kernel
def count(classes: Classes, packed: npt.NDArray[np.uint8], members: Counts, moved: Counts) -> None:
    """Add up coordinates by class, and those of a mask.

    Args:
        classes: uint16 ``[n]``, each below the number of classes.
        packed: the mask's bits.
        members: int64 ``[classes]``, added to.
        moved: int64 ``[classes]``, likewise.
    """
    # Neighbors are often of one class: four tables in turn do not wait for each other.
    table = np.zeros((4, 2 * members.size), np.uint32)
    for i in range(classes.size):
        bit = (packed[i >> 3] >> np.uint8(i & 7)) & np.uint8(1)
        table[i & 3, (np.uint32(classes[i]) << np.uint32(1)) | np.uint32(bit)] += np.uint32(1)
    for k in range(members.size):
        for part in range(4):
            members[k] += table[part, 2 * k] + table[part, 2 * k + 1]
            moved[k] += table[part, 2 * k + 1]


@kernel
def mark(seed: Key, tensor: Key, first: int, classes: Classes, low: Words, drawn: npt.NDArray[np.uint8]) -> None:
    """Which words lie below their class's border.

    Args:
        seed: 64 bits.
        tensor: 64 bits that stand for the tensor.
        first: a multiple of 4,096.
        classes: uint16 ``[n]``; empty where all are of class 0.
        low: uint32 ``[classes]``.
        drawn: uint8 ``[n]``, filled with 1 for those below.
    """
    room = np.empty((4, _COLUMNS), np.uint32)
    words, borders = room.reshape(-1), np.full(TILE, low[0], np.uint32)
    for start in range(0, drawn.size, TILE):
        tile_words(seed, tensor, 0, (first + start) // TILE, room)
        if classes.size:
            _look_up(classes[start : start + TILE], low, borders)
        _below(words, borders, drawn[start : start + TILE])


@kernel
def scan(
    seed: Key,
    tensor: Key,
    first: int,
    numel: int,
    classes: Classes,
    low: Words,
    high: Words,
    several: bool,
    below: Counts,
    places: Counts,
    found: Words,
) -> int:
    """How many coordinates lie inside their windows; as many as fit are kept.

    Args:
        seed: 64 bits.
        tensor: 64 bits that stand for the tensor.
        first: a multiple of 4,096.
        numel: how many coordinates to look at.
        classes: uint16 ``[numel]``; empty where all are of class 0.
        low: uint32 ``[classes]``, where windows begin.
        high: uint32 ``[classes]``, where they end.
        several: whether what lies below must be told by class.
        below: int64 ``[4, classes]``, added to; what lies below, all of it in class 0 unless ``several``.
        places: int64 ``[m]``, filled: the first coordinates inside, counted from ``first``.
        found: uint32 ``[m]``, their words.
    """
    room = np.empty((4, _COLUMNS), np.uint32)
    words, drawn, hits = room.reshape(-1), np.empty(TILE, np.uint8), np.empty(TILE, np.uint8)
    lows, highs = np.full(TILE, low[0], np.uint32), np.full(TILE, high[0], np.uint32)
    inside = 0
    for start in range(0, numel, TILE):
        tile_words(seed, tensor, 0, (first + start) // TILE, room)
        here = drawn[: min(TILE, numel - start)]
        kinds = classes[start : start + TILE]
        if classes.size:
            _look_up(kinds, low, lows)
            _look_up(kinds, high, highs)
        total = _below(words, lows, here)
        if several and classes.size:
            for i in range(here.size):
                below[i & 3, kinds[i]] += here[i]
        else:
            below[0, 0] += total
        hits[here.size :] = 0
        if _inside(words, lows, highs, hits[: here.size]):
            inside = _keep(words, hits, start, inside, places, found)
    return inside


@kernel
def second_words(seed: Key, tensor: Key, coordinates: Counts, seconds: Words) -> None:
    """Second words of a few coordinates.

    Args:
        seed: 64 bits.
        tensor: 64 bits that stand for the tensor.
        coordinates: int64 ``[m]``, in order.
        seconds: uint32 ``[m]``, filled.
    """
    room = np.empty((4, _COLUMNS), np.uint32)
    words = room.reshape(-1)
    tile = np.int64(-1)
    for i in range(coordinates.size):
        if coordinates[i] // TILE != tile:
            tile = coordinates[i] // TILE
            tile_words(seed, tensor, 1, tile, room)
        seconds[i] = words[coordinates[i] % TILE]


@kernel
def _look_up(classes: Classes, table: Words, found: Words) -> None:
    for i in range(classes.size):
        found[i] = table[classes[i]]


@kernel
def _below(words: Words, borders: Words, drawn: npt.NDArray[np.uint8]) -> int:
    total = np.uint32(0)
    for i in range(drawn.size):
        under = words[i] < borders[i]
        drawn[i] = np.uint8(under)
        total += np.uint32(under)
    return int(total)


@kernel
def _inside(words: Words, lows: Words, highs: Words, hits: npt.NDArray[np.uint8]) -> int:
    total = np.uint32(0)
    for i in range(hits.size):
        hit = (words[i] >= lows[i]) & (words[i] < highs[i])
        hits[i] = np.uint8(hit)
        total += np.uint32(hit)
    return int(total)


@kernel
def _keep(words: Words, hits: npt.NDArray[np.uint8], start: int, inside: int, places: Counts, found: Words) -> int:
    eights = hits.view(np.uint64)
    for j in range(eights.size):
        if eights[j]:
            for i in range(8 * j, 8 * j + 8):
                if hits[i]:
                    if inside < places.size:
                        places[inside], found[inside] = start + i, words[i]
                    inside += 1
    return inside
