"""Scales: rows and columns that move more, or less, than the exponents of their weights let expect."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from maskreg.codec.contexts import MAX_SCALE, Bytes
from maskreg.codec.jit import kernel
from maskreg.codec.steps import MIDDLE

_WANTED = 150
"""Moved coordinates of a row or column that its scale is fitted to, about; more tell little."""

_WINDOW = 64
"""Half exponents that are told apart; in 32 binades lies all that matters."""

_SHIFTS = np.arange(-MAX_SCALE, MAX_SCALE + 1)

_UNIT = 1 << 16
"""Rates are whole multiples of its inverse, so that sums of them are exact in any order."""

Counts = npt.NDArray[np.int64]


@kernel
def _count(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    width: int,
    column: int,
    row_scales: Bytes,
    column_scales: Bytes,
    by_row: bool,
    stride: int,
    lowest: int,
    seen: npt.NDArray[np.int32],
    moved: Counts,
) -> None:
    """Coordinates by row (or column) and half exponent less the other side's scale; and how many of each line moved."""
    for row in range(row_scales.size):
        if not by_row and row % stride:
            continue
        first = row * width - column
        step = stride if by_row else 1
        for j in range(0, width, step):
            i = first + j
            if i < 0 or i >= tokens.size:
                continue
            level = 2 * int((context[i] >> 7) & 0xFF) - (column_scales[j] if by_row else row_scales[row]) - lowest
            line = row if by_row else j
            seen[line, min(max(level, 0), seen.shape[1] - 1)] += 1
            moved[line] += tokens[i] != MIDDLE


def fit_scales(
    context: npt.NDArray[np.uint16],
    tokens: npt.NDArray[np.uint8],
    counts: Counts,
    *,
    rows: int,
    width: int,
    column: int,
) -> tuple[Bytes, Bytes]:
    """Row and column scales of a block, int8 ``[rows]`` and ``[width]``, in half exponents, each about a mean of 0.

    The scale of a line is the shift of its exponents under which as many coordinates as did were to be expected to
    move, at the rates at which coordinates of each exponent move in the whole block.

    Args:
        context: uint16 ``[n]``.
        tokens: uint8 ``[n]``.
        counts: int64 ``[256, 64]``, coordinates by exponent and token.
        rows: of the block.
        width: of its rows.
        column: of its first coordinate.
    """
    by_exponent = counts.sum(axis=1)
    still = counts[:, MIDDLE]
    enough = _WANTED / max(1 - still.sum() / by_exponent.sum(), 1e-6)
    lowest = 2 * int(np.flatnonzero(by_exponent)[-1]) + 2 - _WINDOW
    expectations = _expectations(by_exponent, by_exponent - still, lowest)
    scales = [np.zeros(rows, np.int8), np.zeros(width, np.int8)]
    # Columns are judged knowing the rows. Rows judged again, knowing the columns, come out much the same.
    for side, lines, across in ((0, rows, width), (1, width, rows)):
        seen, moved = np.zeros((lines, _WINDOW), np.int32), np.zeros(lines, np.int64)
        stride = max(1, int(across / enough))
        _count(context, tokens, width, column, scales[0], scales[1], side == 0, stride, lowest, seen, moved)
        missed = np.abs(seen.astype(np.float64) @ expectations - moved[:, None] * float(_UNIT))
        fitted = _SHIFTS[missed.argmin(axis=1)]
        scales[side] = np.clip(fitted - round(float(fitted.mean())), -MAX_SCALE, MAX_SCALE).astype(np.int8)
    return scales[0], scales[1]


def _expectations(seen: Counts, moved: Counts, lowest: int) -> npt.NDArray[np.float64]:
    """Rates of moving by level and shift, ``[64, 31]``: a line between those of the exponents that occur."""
    known = np.flatnonzero(seen)
    # Larger weights move less; noise in thin classes must not say otherwise.
    rates = np.minimum.accumulate(moved[known] / seen[known])
    levels = lowest + np.arange(_WINDOW)[:, None] - _SHIFTS
    return np.rint(np.interp(levels / 2, known, rates) * _UNIT)
