"""Counts and draws, span by span, by the words of coordinates.

Deciding coordinate by coordinate would take a branch each. Instead, the kernels generate the words of a tile of 4,096
coordinates at once, then look up borders, compare, and collect the few hits, in loops of their own without branches:
native/src/draws.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import pack, packed_bytes, unpack
from maskreg.mask.philox import TILE, words_of
from maskreg.native import Library, library

MAX_CLASSES = 512
"""Classes that can be counted at once."""

Bits = npt.NDArray[np.uint8]
Classes = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


class Stream(NamedTuple):
    """Whose random words.

    Attributes:
        seed: 64 bits.
        tensor: 64 bits that stand for the tensor.
    """

    seed: int
    tensor: int


class Span(NamedTuple):
    """Coordinates of a tensor.

    Attributes:
        first: a multiple of 4,096.
        numel: how many.
        classes: uint16 ``[numel]``; None when all are 0.
    """

    first: int
    numel: int
    classes: Classes | None


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


def count(classes: Classes, packed: Bits, members: Counts, moved: Counts) -> None:
    """Count coordinates, all and the mask's, by class.

    Args:
        classes: uint16 ``[n]``.
        packed: the mask's bits, from :func:`maskreg.mask.pack`.
        members: int64 ``[classes]``, added to; no more than 512.
        moved: int64 ``[classes]``, likewise.
    """
    if members.size > MAX_CLASSES or members.size != moved.size or packed.size != packed_bytes(classes.size):
        raise ValueError(f"{members.size} classes, {classes.size} coordinates and {packed.size} bytes do not match")
    if compiled := library():
        compiled.lib.maskreg_count_classes(
            compiled.read(classes), classes.size, compiled.read(packed),
            members.size, compiled.write(members), compiled.write(moved),
        )  # fmt: skip
        return
    members += np.bincount(classes, minlength=members.size)
    moved += np.bincount(classes[unpack(packed, classes.size)], minlength=moved.size)


def mark(stream: Stream, span: Span, low: Words) -> Bits:
    """Packed bits of the coordinates whose words lie below their class's border.

    Args:
        stream: whose words.
        span: which coordinates.
        low: uint32 ``[classes]``, the borders.
    """
    if compiled := library():
        packed = np.empty(packed_bytes(span.numel), np.uint8)
        structure, _arrays = _structure(compiled, stream, span)
        compiled.lib.maskreg_mark_drawn(structure, compiled.read(low), compiled.write(packed))
        return packed
    return pack(words_of(*stream, span.first, span.numel) < _of_each(span, low))


def scan(stream: Stream, span: Span, windows: Windows, below: Counts, hits: Hits) -> int:
    """Count the words below their windows, and collect those inside; returns how many are inside.

    Args:
        stream: whose words.
        span: which coordinates.
        windows: by class.
        below: int64 ``[classes]`` to count by class, no more than 512, or ``[1]`` to count all together; added to.
        hits: filled, with the first when there are more than fit.
    """
    if below.size > MAX_CLASSES:
        raise ValueError(f"{below.size} classes are more than {MAX_CLASSES}")
    if compiled := library():
        structure, _arrays = _structure(compiled, stream, span)
        arrays = [compiled.write(array) for array in hits]
        collected = compiled.ffi.new("maskreg_hits *", (hits.places.size, *arrays))
        low, high = (compiled.read(side) for side in windows)
        total: int = compiled.lib.maskreg_scan_words(
            structure, low, high, below.size, compiled.write(below), collected
        )  # fmt: skip
        return total
    words = words_of(*stream, span.first, span.numel)
    low, high = (_of_each(span, side) for side in windows)
    drawn = words < low
    if span.classes is None or below.size == 1:
        below[0] += np.count_nonzero(drawn)
    else:
        below += np.bincount(span.classes[drawn], minlength=below.size)
    inside = np.flatnonzero(~drawn & (words < high))
    first = inside[: hits.places.size]
    hits.places[: first.size], hits.words[: first.size] = first, words[first]
    return inside.size


def second_words(stream: Stream, coordinates: Counts) -> Words:
    """Second words of a few coordinates, uint32 ``[m]``.

    Args:
        stream: whose words.
        coordinates: int64 ``[m]``.
    """
    seconds = np.empty(coordinates.size, np.uint32)
    if compiled := library():
        compiled.lib.maskreg_second_words(*stream, compiled.read(coordinates), seconds.size, compiled.write(seconds))
        return seconds
    tiles, places = np.divmod(coordinates, TILE)
    for tile in np.unique(tiles).tolist():
        own = tiles == tile
        seconds[own] = words_of(*stream, tile * TILE, TILE, second=True)[places[own]]
    return seconds


def _of_each(span: Span, table: Words) -> Words | np.uint32:
    border: np.uint32 = table[0]
    return border if span.classes is None else table[span.classes]


def _structure(compiled: Library, stream: Stream, span: Span) -> tuple[Any, Any]:
    """``maskreg_span`` of kernels.h, and what has to live as long as it."""
    classes = compiled.ffi.NULL if span.classes is None else compiled.read(span.classes)
    return compiled.ffi.new("maskreg_span *", (*stream, span.first, span.numel, classes)), classes
