"""Counting coordinates of masks in one span of a tensor, on packed bits: the only module that sees coordinates.

Bit i of byte j of a packed mask is coordinate 8 j + i of its span. Zero bits pad a mask to whole 64-bit words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.mask.packed import PAD_BITS, packed_bytes
from maskreg.mask.rounding import CLASSES
from maskreg.native import library

Packed = npt.NDArray[np.uint8]
Cells = npt.NDArray[np.int64]

CELLS = 4
"""Cells of a 2x2 table: in neither mask, in A only, in B only, in both."""

IN_A: npt.NDArray[np.float64] = np.array([0.0, 1.0, 0.0, 1.0])
"""Whether a cell is in A."""

IN_B: npt.NDArray[np.float64] = np.array([0.0, 0.0, 1.0, 1.0])
"""Whether a cell is in B."""

MOST_CROSSED = 6
"""Masks whose combinations are all counted: 64 of them."""

_WORDS = 1 << 12
"""Words of each mask at a time: what six masks share in every combination is 2 MiB."""

MAX_MASKS = 255
"""Masks that can be counted at once: the number of masks that hold a coordinate is kept in one byte."""


def count_both(a: Packed, b: Packed) -> tuple[int, int, int]:
    """Count coordinates in A, in B, and in both."""
    a, b = _checked(a, b)
    compiled = library()
    counts = np.empty(3, np.int64)
    compiled.lib.maskreg_count_both(
        compiled.read(a), compiled.read(b), a.size // (PAD_BITS // 8), compiled.write(counts)
    )
    in_a, in_b, both = counts.tolist()
    return in_a, in_b, both


def count_classes(a: Packed, b: Packed, codes: npt.NDArray[np.uint16]) -> Cells:
    """Count the 2x2 table of each class of the source's bf16 codes, uint16 ``[n]`` with n < 2^31.

    Returns int64 ``[512, 4]``: rows as :func:`maskreg.mask.rounding.classes_of` numbers them, columns as :data:`CELLS`.
    """
    a, b = _checked(a, b)
    if a.size != packed_bytes(codes.size) or codes.size >= 1 << 31:
        raise ValueError(f"lengths do not match: masks of {a.size} bytes, {codes.size} coordinates")
    compiled = library()
    counts = np.zeros((CLASSES, CELLS), np.int64)
    compiled.lib.maskreg_count_cells(
        compiled.read(codes), codes.size, compiled.read(a), compiled.read(b), compiled.write(counts)
    )
    return counts


def count_agreeing(masks: list[Packed], numel: int) -> Cells:
    """Count coordinates by the number of masks that hold them, of 1 to 255: int64 ``[len(masks) + 1]``."""
    if not 0 < len(masks) <= MAX_MASKS or any(mask.size != packed_bytes(numel) for mask in masks):
        raise ValueError(f"need 1 to {MAX_MASKS} masks of {numel} coordinates, got {len(masks)}")
    compiled = library()
    counts = np.zeros(len(masks) + 1, np.int64)
    pointers = [compiled.read(np.ascontiguousarray(mask)) for mask in masks]
    compiled.lib.maskreg_count_agreeing(
        pointers, len(masks), packed_bytes(numel) // (PAD_BITS // 8), compiled.write(counts)
    )
    counts[0] = numel - counts.sum()
    return counts


def count_crossed(masks: list[Packed], numel: int) -> Cells:
    """Count coordinates by which of 1 to 6 masks hold them: int64 ``[2 ** len(masks)]``.

    Bit m of an index is mask m: of two masks in neither, in the first only, in the second only, in both.
    """
    if not 0 < len(masks) <= MOST_CROSSED or any(mask.size != packed_bytes(numel) for mask in masks):
        raise ValueError(f"need 1 to {MOST_CROSSED} masks of {numel} coordinates, got {len(masks)}")
    words = [np.ascontiguousarray(mask).view(np.uint64) for mask in masks]
    counts = np.zeros(1 << len(masks), np.int64)
    for start in range(0, words[0].size, _WORDS):
        held = np.full((1, words[0][start : start + _WORDS].size), -1, np.int64).view(np.uint64)
        for mask in words:
            held = np.concatenate([held, held & mask[start : start + _WORDS]])
        counts += np.bitwise_count(held).sum(1, dtype=np.int64)
    counts[0] = numel
    # Held by all of some masks, less what one more mask holds too, is held by these and not by that one.
    for bit in range(len(masks)):
        pairs = counts.reshape(-1, 2, 1 << bit)
        pairs[:, 0] -= pairs[:, 1]
    return counts


def count_stripes(packed: Packed, start: int, numel: int, rows: Cells, columns: Cells) -> None:
    """Add a span of a matrix, from coordinate ``start``, to the counts of its rows, int64 ``[m]``, and columns."""
    if packed.size != packed_bytes(numel) or not 0 <= start <= start + numel <= rows.size * columns.size:
        raise ValueError(f"span [{start}, {start + numel}) is outside a matrix [{rows.size}, {columns.size}]")
    compiled = library()
    compiled.lib.maskreg_count_stripes(
        compiled.read(np.ascontiguousarray(packed)), start, numel,
        columns.size, compiled.write(rows), compiled.write(columns),
    )  # fmt: skip


def _checked(a: Packed, b: Packed) -> tuple[Packed, Packed]:
    if a.shape != b.shape or a.size % (PAD_BITS // 8):
        raise ValueError(f"lengths differ, or are not whole words: {a.size} and {b.size} bytes")
    return np.ascontiguousarray(a), np.ascontiguousarray(b)
