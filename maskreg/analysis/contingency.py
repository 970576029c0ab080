"""Counting coordinates of masks in one span of a tensor, on packed bits: the only module that sees coordinates.

Bit i of byte j of a packed mask is coordinate 8 j + i of its span. Zero bits pad a mask to whole 64-bit words.
"""

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
"""Masks that can be counted at once: the number of masks that hold a coordinate is kept in one byte."""


def count_both(a: Packed, b: Packed) -> tuple[int, int, int]:
    """Count coordinates in A, in B, and in both.

    Args:
        a: A's bits, from :func:`maskreg.mask.pack`.
        b: B's bits.

    Raises:
        ValueError: lengths differ, or are not whole words.
    """
    in_a, in_b, both = _popcounts(*_words(a, b))
    return int(in_a), int(in_b), int(both)


def count_classes(a: Packed, b: Packed, codes: npt.NDArray[np.uint16]) -> Cells:
    """Count the 2x2 table of each class of source codes.

    Args:
        a: A's bits, from :func:`maskreg.mask.pack`.
        b: B's bits.
        codes: the source's bf16 codes, uint16 ``[n]`` with n < 2^31.

    Returns:
        int64 ``[512, 4]``: rows as numbered by :func:`maskreg.mask.rounding.classes_of`, columns neither, A only,
        B only, both.

    Raises:
        ValueError: lengths do not match.
    """
    words = _words(a, b)
    if a.size != packed_bytes(codes.size) or codes.size >= 1 << 31:
        raise ValueError(f"lengths do not match: masks of {a.size} bytes, {codes.size} coordinates")
    counts = np.zeros(CLASSES * CELLS, np.int64)
    _class_counts(*words, codes, counts)
    return counts.reshape(CLASSES, CELLS)


def count_agreeing(masks: list[Packed], numel: int) -> Cells:
    """Count coordinates by the number of masks that hold them.

    Args:
        masks: 1 to 255 masks, from :func:`maskreg.mask.pack`.
        numel: coordinates.

    Returns:
        int64 ``[len(masks) + 1]``: coordinates in exactly k of the masks.

    Raises:
        ValueError: too many masks, or lengths do not match.
    """
    if not 0 < len(masks) <= MAX_MASKS or any(mask.size != packed_bytes(numel) for mask in masks):
        raise ValueError(f"need 1 to {MAX_MASKS} masks of {numel} coordinates, got {len(masks)}")
    sums = np.zeros(packed_bytes(numel), np.uint64)
    for mask in masks:
        _add_spread(mask, _SPREAD, sums)
    return np.bincount(sums.view(np.uint8)[:numel], minlength=len(masks) + 1).astype(np.int64)


def count_stripes(packed: Packed, start: int, numel: int, rows: Cells, columns: Cells) -> None:
    """Add a span of a matrix to the counts of its rows and columns.

    Args:
        packed: the span's bits, from :func:`maskreg.mask.pack`.
        start: first coordinate of the span within the matrix.
        numel: coordinates of the span.
        rows: int64 ``[m]``, added to.
        columns: int64 ``[n]``, added to.

    Raises:
        ValueError: the span does not lie within a matrix of that shape.
    """
    if packed.size != packed_bytes(numel) or not 0 <= start <= start + numel <= rows.size * columns.size:
        raise ValueError(f"span [{start}, {start + numel}) is outside a matrix [{rows.size}, {columns.size}]")
    _add_stripes(packed, start, numel, rows, columns)


_SPREAD: Words = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view("<u8")[:, 0]
"""A byte's eight bits, each in its own byte of a word: 0b101 -> 0x00010001 (bytes 1, 0, 1, 0, ...)."""


def _words(a: Packed, b: Packed) -> tuple[Words, Words]:
    if a.shape != b.shape or a.size % (PAD_BITS // 8):
        raise ValueError(f"lengths differ, or are not whole words: {a.size} and {b.size} bytes")
    return np.ascontiguousarray(a).view(np.uint64), np.ascontiguousarray(b).view(np.uint64)


@kernel
def _popcounts(words_a: Words, words_b: Words) -> tuple[np.uint64, np.uint64, np.uint64]:
    # a += popcount(x), b += popcount(y), both += popcount(x & y), for each pair of words x, y.
    # Kernighan's loop clears the lowest set bit: 0b1100 -> 0b1000 -> 0 takes two turns. LLVM recognizes it as a
    # population count and vectorizes it; Python has no intrinsic that would say so.
    a, b, both = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(words_a.size):
        x, y = words_a[i], words_b[i]
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
def _class_counts(words_a: Words, words_b: Words, codes: npt.NDArray[np.uint16], counts: Cells) -> None:
    # counts[_cell(code_i, A_i, B_i)] += 1 for each coordinate i.
    # Neighboring coordinates often fall into one cell, and each increment would wait for the one before. So coordinate
    # i counts in table i % 4, and the four tables are added at the end.
    tables: npt.NDArray[np.int32] = np.zeros((4, counts.size), np.int32)
    whole = codes.size // 64
    for w in range(whole):
        x, y, first = words_a[w], words_b[w], w * 64
        for i in range(0, 64, 4):
            for j in range(4):
                tables[j, _cell(codes[first + i + j], x, y, np.uint64(i + j))] += 1
    for i in range(codes.size - whole * 64):
        tables[0, _cell(codes[whole * 64 + i], words_a[whole], words_b[whole], np.uint64(i))] += 1
    for j in range(4):
        for c in range(counts.size):
            counts[c] += tables[j, c]


@kernel
def _cell(code: np.uint16, x: np.uint64, y: np.uint64, bit: np.uint64) -> np.uint32:
    """``4 * class + [in A] + 2 * [in B]``; the class is ``2 * exponent + [mantissa is 0]``.

    Example: code 0x3F80 (1.0) has exponent field 127 and mantissa 0, so class 255. In both masks: cell 1023.
    """
    wide = np.uint32(code)
    # Bits 14..7 are the exponent: shifting right by 4 leaves 8 * exponent, which is 4 * (2 * exponent).
    kind = ((wide >> np.uint32(4)) & np.uint32(0x7F8)) | (np.uint32((wide & np.uint32(0x7F)) == 0) << np.uint32(2))
    in_a, in_b = (x >> bit) & np.uint64(1), (y >> bit) & np.uint64(1)
    return kind | np.uint32(in_a) | (np.uint32(in_b) << np.uint32(1))


@kernel
def _add_spread(packed: Packed, spread: Words, sums: Words) -> None:
    # Adds eight coordinates at once: byte k of sums[i] counts the masks that hold coordinate 8 i + k. With at most 255
    # masks no byte carries into the next.
    for i in range(packed.size):
        sums[i] += spread[packed[i]]


@kernel
def _add_stripes(packed: Packed, start: int, numel: int, rows: Cells, columns: Cells) -> None:
    # Walks the span in C order with a running (row, column), so there is no division for each coordinate.
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
