"""Which codings of a block are tried: tokens, as sparse, or both.

Sparse blocks take fewer bytes where few coordinates move, and decode faster; but they know nothing of rows and columns.
Knowing how many coordinates move in each row saves, over not knowing it,

    G = sum of k log2(k / (movers / rows)) bits, k the movers of a row

(the log-likelihood ratio of R. R. Sokal and F. J. Rohlf, "Biometry"); the same for columns. Scales take about four bits
each, so only where G exceeds that, tokens are tried too: where an embedding's rows are of words that seldom occur, say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes, Grid
from maskreg.codec.contexts import rows_of
from maskreg.codec.hazards import LOGARITHM_BITS, logarithms, weighed_logarithms
from maskreg.codec.ulp_steps import EXPONENTS, Counts
from maskreg.native import library

FEW = 32
"""Sparse blocks of one mover in so many coordinates, or fewer, decode about as fast as tokens."""

_SMALL = 1 << 18
_SMALL_FEW = 8
"""In a block this small, tokens rarely make up for their tables and states, and time matters less: more are sparse."""

_TINY = 1 << 10
"""In a block this small both are tried, because tables and states of tokens may take more than they save."""

_FEW_ROWS = 4
"""Rows that change are coded alone if there is one in so many, or fewer, and as many movers in each."""

MIN_MOVED = 8
"""Movers per row and column below which scales and factors cost more than they save, as a rule; measured."""

_SCALE_BITS = 4
MIN_LINE = 32
"""Rows and columns of the smallest matrix for which scales or factors can pay."""

_PIECE, _PIECES = 1 << 9, 64
"""Coordinates looked at first, because most blocks have many movers everywhere: so many, in so many places."""

_MARGIN = 1.25
"""By how much more of a sample than of a block must move: at the border both codings are about as long."""

_SAMPLED = ((1 << 20, 8), (1 << 17, 2))
"""Of the tiles of a block of at least so many coordinates, exponents are counted in one of so many."""

_TILE = 1 << 10


class Choice(NamedTuple):
    """Codings to try: at least one.

    Attributes:
        movers: int64 ``[3, 256]``, of :func:`count_movers`, where a sparse block is tried; else None.
        lines: whether it is known that scales pay.
        rows: bool ``[rows]``, those that change, where a block of them alone is tried; else None.
    """

    movers: Counts | None = None
    tokens: bool = True
    lines: bool = False
    rows: npt.NDArray[np.bool_] | None = None


def choose(source: Codes, target: Codes, grid: Grid) -> Choice:
    """Codings to try for a block whose sides differ."""
    n = source.size
    if n <= _TINY:
        return Choice(count_movers(source, target))
    few = _SMALL_FEW if n <= _SMALL else FEW
    pieces, length, margin = (_PIECES, _PIECE, _MARGIN) if n > _PIECES * _PIECE else (1, n, 1)
    if few * count_differing(source, target, length, n // pieces) > margin * pieces * length:
        return Choice()
    movers = count_movers(source, target)
    moved = int(movers[1].sum())
    if few * moved > n:
        return Choice()
    if not 1 < grid.width <= n:
        return Choice(movers, tokens=False)
    rows, columns = count_lines(source, target, grid)
    lines = _has_lines(rows, columns)
    enough = FEW * moved > n and moved >= MIN_MOVED * (rows.size + columns.size)
    changing = rows > 0
    few_rows = _FEW_ROWS * np.count_nonzero(changing) <= min(rows.size, moved)
    return Choice(movers, lines or enough, lines, changing if few_rows else None)


def count_differing(source: Codes, target: Codes, length: int, stride: int) -> int:
    """How many coordinates differ in pieces of ``length``, at most 65,535, of which one begins at each ``stride``."""
    if compiled := library():
        differing: int = compiled.lib.maskreg_count_differing(
            compiled.read(source), compiled.read(target), source.size, length, stride
        )
        return differing
    starts = np.arange(0, source.size - length + 1, stride)
    own = (starts[:, None] + np.arange(length)).reshape(-1)
    return int(np.count_nonzero(source[own] != target[own]))


def count_movers(source: Codes, target: Codes) -> Counts:
    """Coordinates by exponent: all, those that move, and those that move by more than one ULP; int64 ``[3, 256]``.

    Of a large block, all are estimated by a part.
    """
    n, counts = source.size, np.zeros((3, EXPONENTS), np.int64)
    every = next((every for least, every in _SAMPLED if n >= least), 1)
    if compiled := library():
        compiled.lib.maskreg_count_movers(
            compiled.read(source), compiled.read(target), n, every, compiled.write(counts)
        )
    else:
        exponents = source >> 7 & 0xFF
        # A change of sign is no single ULP, not even from 7fff to 8000 or from ffff to 0000, neighbors as numbers.
        far = (target - source + np.uint16(1) > 2) | ((source ^ target) > 0x7FFF)
        for own, chosen in zip(counts, (np.arange(n) // _TILE % every == 0, source != target, far), strict=True):
            own += np.bincount(exponents[chosen], minlength=EXPONENTS)
    counts[0] = counts[0] * n // counts[0].sum()
    return counts


def _has_lines(rows: Counts, columns: Counts) -> bool:
    """Whether rows and columns differ by more than it takes to say so."""
    if min(rows.size, columns.size) < MIN_LINE:
        return False
    return gain_of_lines(rows) + gain_of_lines(columns) > _SCALE_BITS * (rows.size + columns.size) << LOGARITHM_BITS


def count_lines(source: Codes, target: Codes, grid: Grid) -> tuple[Counts, Counts]:
    """Movers of each row and of each column; int64 ``[rows]`` and ``[width]``."""
    rows, columns = np.zeros(rows_of(grid, source.size), np.int64), np.zeros(grid.width, np.int64)
    if compiled := library():
        compiled.lib.maskreg_count_lines(
            compiled.read(source), compiled.read(target), source.size, grid.width, grid.column, compiled.write(rows),
            compiled.write(columns),
        )  # fmt: skip
        return rows, columns
    of_row, of_column = np.divmod(np.flatnonzero(source != target) + grid.column, grid.width)
    np.add.at(rows, of_row, 1)
    np.add.at(columns, of_column, 1)
    return rows, columns


def gain_of_lines(movers: Counts) -> int:
    """How much it saves to know how many movers each line has, in bits of hazards.py."""
    if compiled := library():
        gain: int = compiled.lib.maskreg_gain_of_lines(compiled.read(movers), movers.size, logarithms(compiled))
        return gain
    total = movers.sum()
    known, unknown, even = (weighed_logarithms(counts) for counts in (movers, total, np.array(movers.size)))
    return int(known.sum() - unknown + even // movers.size * total)
