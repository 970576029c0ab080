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

from maskreg.codec.base import Codes
from maskreg.codec.contexts import rows_of
from maskreg.codec.grid import Grid

FEW = 32
"""Sparse blocks of one mover in so many coordinates, or fewer, decode about as fast as tokens."""

_SMALL = 1 << 18
_SMALL_FEW = 8
"""In a block so small, what tables and states take may outweigh this; time matters less."""

_SCALE_BITS = 4
_MIN_LINE = 32

_CHUNK, _CHUNKS = 1 << 12, 16
"""Coordinates looked at first, because most blocks have many movers everywhere."""


class Choice(NamedTuple):
    """Codings to try: at least one.

    Attributes:
        sparse: whether a sparse block is.
        tokens: whether tokens are.
        lines: whether it is known that scales pay.
    """

    sparse: bool = False
    tokens: bool = True
    lines: bool = False


def choose(source: Codes, target: Codes, grid: Grid) -> Choice:
    """Codings to try for a block whose sides differ."""
    n = source.size
    few = _SMALL_FEW if n <= _SMALL else FEW
    stride = max(_CHUNK, n // _CHUNKS)
    differing = np.concatenate([source[at : at + _CHUNK] != target[at : at + _CHUNK] for at in range(0, n, stride)])
    if few * np.count_nonzero(differing) > 2 * differing.size:
        return Choice()
    movers = np.flatnonzero(source != target)
    if few * movers.size > n:
        return Choice()
    lines = _has_lines(movers, n, grid)
    return Choice(sparse=True, tokens=lines or FEW * movers.size > n, lines=lines)


def _has_lines(movers: npt.NDArray[np.intp], n: int, grid: Grid) -> bool:
    """Whether rows and columns differ by more than it takes to say so."""
    if not _MIN_LINE <= grid.width <= n or rows_of(grid, n) < _MIN_LINE:
        return False
    rows, columns = np.divmod(movers + grid.column, grid.width)
    lines = rows_of(grid, n) + grid.width
    return _gain(rows, rows_of(grid, n)) + _gain(columns, grid.width) > _SCALE_BITS * lines


def _gain(lines: npt.NDArray[np.intp], count: int) -> float:
    """Bits that it saves to know how many movers each of ``count`` lines has."""
    movers = np.bincount(lines)
    movers = movers[movers > 0]
    return float(movers @ np.log2(movers * (count / lines.size)))
