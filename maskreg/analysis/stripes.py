"""Stripes of a mask: rows and columns that move together, against independent coordinates.

Example: a 4 x 6 matrix with one full row and nothing else has density p = 1/4. Its rows have densities 0, 1, 0, 0 with
variance 3/16; independent coordinates would give p (1 - p) / 6 = 1/32: a dispersion of 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import ratio


@dataclass(frozen=True)
class Lines:
    """The rows, or the columns, of one matrix.

    Attributes:
        count: how many.
        full, empty: shares of them with all, or none, of their coordinates in the mask; None without lines.
        variance: of their densities; None without coordinates.
        binomial: p (1 - p) / length, the variance of independent coordinates.
        dispersion: variance / binomial; None for an empty or full mask.
    """

    count: int
    full: float | None
    empty: float | None
    variance: float | None
    binomial: float | None
    dispersion: float | None


@dataclass(frozen=True)
class Stripes:
    """Both directions of one matrix of one mask."""

    rows: Lines
    columns: Lines


def stripes_of(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Stripes:
    """The stripes of a matrix.

    Args:
        rows: int64 ``[m]``, coordinates of each row in the mask.
        columns: int64 ``[n]``, coordinates of each column in the mask.
    """
    return Stripes(_lines(rows, columns.size), _lines(columns, rows.size))


def _lines(counts: npt.NDArray[np.int64], length: int) -> Lines:
    n = counts.size
    if not n or not length:
        return Lines(n, None, None, None, None, None)
    densities = counts / length
    variance, p = float(densities.var()), float(counts.sum()) / (n * length)
    binomial = p * (1 - p) / length
    full, empty = int((counts == length).sum()), int((counts == 0).sum())
    return Lines(n, full / n, empty / n, variance, binomial, ratio(variance, binomial))
