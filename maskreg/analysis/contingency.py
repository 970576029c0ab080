"""Counting what masks have in common in one run of a tensor, on packed bits: the one place that sees coordinates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.jit import kernel
from maskreg.mask.packed import PAD_BITS, packed_bytes
from maskreg.mask.rounding import CLASSES

Packed = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Cells = npt.NDArray[np.int64]

CELLS = 4
"""Cells of a 2x2 table: in neither mask, in A only, in B only, in both."""

MAX_MASKS = 255
"""Masks that can be counted at once: how many agree is kept in a byte."""


def count_both(one: Packed, other: Packed) -> tuple[int, int, int]:
    """Count coordinates in A, in B, and in both.

    Args:
        one: A's bits, as :func:`maskreg.mask.pack` gives them.
        other: B's, likewise.

    Raises:
        ValueError: they are of different lengths, or not of whole words.
    """
    a, b, both = _popcounts(*_words(one, other))
    return int(a), int(b), int(both)


def count_classes(one: Packed, other: Packed, codes: npt.NDArray[np.uint16]) -> Cells:
    """Count the 2x2 table of each class of source codes.

    Args:
        one: A's bits, as :func:`maskreg.mask.pack` gives them.
        other: B's, likewise.
        codes: the source's bf16 codes, uint16 ``[n]``, at most 2^31 of them.

    Returns:
        int64 ``[512, 4]``: rows as :func:`maskreg.mask.rounding.classes_of` numbers them, columns neither, A only,
        B only, both.

    Raises:
        ValueError: the lengths do not belong together.
    """
    words = _words(one, other)
    if one.size != packed_bytes(codes.size) or codes.size >= 1 << 31:
        raise ValueError(f"masks of {one.size} bytes are not of {codes.size} coordinates")
    counts = np.zeros(CLASSES * CELLS, np.int64)
    _class_counts(*words, codes, counts)
    return counts.reshape(CLASSES, CELLS)


def count_agreeing(masks: list[Packed], numel: int) -> Cells:
    """Count coordinates by how many masks they are in.

    Args:
        masks: at most 255 of them, as :func:`maskreg.mask.pack` gives them.
        numel: coordinates.

    Returns:
        int64 ``[len(masks) + 1]``: how many coordinates are in exactly k of the masks.

    Raises:
        ValueError: too many masks, or lengths that do not belong together.
    """
    if not 0 < len(masks) <= MAX_MASKS or any(mask.size != packed_bytes(numel) for mask in masks):
        raise ValueError(f"{len(masks)} masks are not 1 to {MAX_MASKS} masks of {numel} coordinates")
    sums = np.zeros(packed_bytes(numel), np.uint64)
    for mask in masks:
        _add_spread(mask, _SPREAD, sums)
    return np.bincount(sums.view(np.uint8)[:numel], minlength=len(masks) + 1).astype(np.int64)


def count_stripes(packed: Packed, start: int, numel: int, rows: Cells, columns: Cells) -> None:
    """Add a run of a matrix to the counts of its rows and columns.

    Args:
        packed: the run's bits, as :func:`maskreg.mask.pack` gives them.
        start: first coordinate of the run within the matrix.
        numel: coordinates of the run.
        rows: int64 ``[m]``, added to.
        columns: int64 ``[n]``, added to.

    Raises:
        ValueError: the run does not lie within a matrix of that shape.
    """
    if packed.size != packed_bytes(numel) or not 0 <= start <= start + numel <= rows.size * columns.size:
        raise ValueError(f"no run [{start}, {start + numel}) of a matrix [{rows.size}, {columns.size}]")
    _add_stripes(packed, start, numel, rows, columns)


_SPREAD: Words = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view("<u8")[:, 0]
"""Each byte's eight bits, one to a byte of a word."""


def _words(one: Packed, other: Packed) -> tuple[Words, Words]:
    if one.shape != other.shape or one.size % (PAD_BITS // 8):
        raise ValueError(f"masks of {one.size} and {other.size} bytes are not of one tensor")
    return np.ascontiguousarray(one).view(np.uint64), np.ascontiguousarray(other).view(np.uint64)


@kernel
def _popcounts(one: Words, other: Words) -> tuple[np.uint64, np.uint64, np.uint64]:
    # Loops over the lowest set bit: the compiler knows them for what they are, and counts whole vectors at a time.
    a, b, both = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(one.size):
        x, y = one[i], other[i]
        z = x & y
        while x:
            x &= x - np.uint64(1)
            a += np.uint64(1)
        while y:
            y &= y - np.uint64(1)
            b += np.uint64(1)
        while z:
            z &= z - np.uint64(1)
            both += np.uint64(1)
    return a, b, both


@kernel
def _class_counts(one: Words, other: Words, codes: npt.NDArray[np.uint16], counts: Cells) -> None:
    # Four tables in turn: neighbors are often of one class, and would wait for each other's count.
    tables: npt.NDArray[np.int32] = np.zeros((4, counts.size), np.int32)
    whole = codes.size // 64
    for w in range(whole):
        x, y, first = one[w], other[w], w * 64
        for i in range(0, 64, 4):
            for j in range(4):
                tables[j, _cell(codes[first + i + j], x, y, np.uint64(i + j))] += 1
    for i in range(codes.size - whole * 64):
        tables[0, _cell(codes[whole * 64 + i], one[whole], other[whole], np.uint64(i))] += 1
    for j in range(4):
        for c in range(counts.size):
            counts[c] += tables[j, c]


@kernel
def _cell(code: np.uint16, x: np.uint64, y: np.uint64, bit: np.uint64) -> np.uint32:
    """Four times the class, plus 1 in A, plus 2 in B."""
    wide = np.uint32(code)
    kind = ((wide >> np.uint32(4)) & np.uint32(0x7F8)) | (np.uint32((wide & np.uint32(0x7F)) == 0) << np.uint32(2))
    in_a, in_b = (x >> bit) & np.uint64(1), (y >> bit) & np.uint64(1)
    return kind | np.uint32(in_a) | (np.uint32(in_b) << np.uint32(1))


@kernel
def _add_spread(packed: Packed, spread: Words, sums: Words) -> None:
    for i in range(packed.size):
        sums[i] += spread[packed[i]]


@kernel
def _add_stripes(packed: Packed, start: int, numel: int, rows: Cells, columns: Cells) -> None:
    row, column = start // columns.size, start % columns.size
    in_row = 0
    for i in range(numel):
        bit = (packed[i >> 3] >> (i & 7)) & 1
        in_row += bit
        columns[column] += bit
        column += 1
        if column == columns.size:
            rows[row] += in_row
            row, column, in_row = row + 1, 0, 0
    if in_row:
        rows[row] += in_row
